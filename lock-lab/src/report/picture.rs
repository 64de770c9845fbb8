//! Where things stand in a picture.

/// An axis: a range of values, drawn along a range of pixels.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Axis {
    pub(crate) values: (f64, f64),
    pub(crate) pixels: (f64, f64),
}

impl Axis {
    /// Pixel of a value. A value beyond an end of the axis stands at that end.
    pub(crate) fn at(&self, value: f64) -> f64 {
        let ((low, high), (from, to)) = (self.values, self.pixels);
        let share = (value - low) / (high - low).max(f64::MIN_POSITIVE);
        from + share.clamp(0.0, 1.0) * (to - from)
    }

    /// Length of one pixel, in values.
    pub(crate) fn pixel(&self) -> f64 {
        (self.values.1 - self.values.0) / (self.pixels.1 - self.pixels.0).abs()
    }

    /// Round values, hardly more than `most` of them.
    pub(crate) fn ticks(&self, most: f64) -> Vec<f64> {
        let (low, high) = self.values;
        let rough = (high - low) / most;
        let power = 10_f64.powf(rough.max(0.01).log10().floor());
        let step = [1.0, 2.0, 5.0, 10.0].into_iter().map(|factor| factor * power).find(|step| *step >= rough);
        let step = step.unwrap_or(power * 10.0);
        let mut ticks = Vec::new();
        let mut at = (low / step).ceil() * step;
        while at <= high {
            // No "-0".
            ticks.push(if at.abs() < step / 2.0 { 0.0 } else { at });
            at += step;
        }
        ticks
    }
}

/// A coordinate: a tenth of a pixel is all that can be seen.
pub(crate) fn px(value: f64) -> String {
    let text = format!("{value:.1}");
    text.strip_suffix(".0").map_or(text.clone(), ToOwned::to_owned)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ticks_are_round_and_few() {
        let of = |low, high| Axis { values: (low, high), pixels: (0.0, 100.0) }.ticks(11.0);
        assert_eq!(of(-500.0, 500.0), [-500.0, -400.0, -300.0, -200.0, -100.0, 0.0, 100.0, 200.0, 300.0, 400.0, 500.0]);
        assert!(of(-2033.0, 5120.0).len() <= 12);
        assert!(of(1.0, 1.0).len() <= 2);
    }

    #[test]
    fn an_axis_may_run_upwards_and_nothing_stands_beyond_its_ends() {
        let axis = Axis { values: (0.0, 10.0), pixels: (100.0, 0.0) };
        assert_eq!([-1.0, 0.0, 5.0, 10.0, 11.0].map(|value| axis.at(value)), [100.0, 100.0, 50.0, 0.0, 0.0]);
        assert!((axis.pixel() - 0.1).abs() < 1e-9);
    }
}
