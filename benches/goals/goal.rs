//! Goals, the figures that were measured for them, and the table of both.

use comfy_table::Table;

/// How many rounds are played: one in a test.
pub(crate) fn rounds(is_test: bool) -> usize {
    if is_test { 1 } else { 5 }
}

/// What a figure is to be.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Goal {
    AtMost(f64),
    AtLeast(f64),
}

/// What was measured for a goal: one value for each round. The median counts.
#[derive(Debug, Clone)]
pub(crate) struct Figure {
    what: String,
    rounds: Vec<f64>,
    /// How many digits after the point tell something.
    digits: usize,
    goal: Goal,
}

impl Figure {
    pub(crate) fn new(what: impl Into<String>, rounds: Vec<f64>, digits: usize, goal: Goal) -> Self {
        Self { what: what.into(), rounds, digits, goal }
    }

    fn row(&self) -> [String; 5] {
        let digits = self.digits;
        let [lowest, highest] =
            [f64::min, f64::max].map(|pick| self.rounds.iter().copied().reduce(pick).unwrap_or(f64::NAN));
        let goal = match self.goal {
            Goal::AtMost(limit) => format!("at most {limit}"),
            Goal::AtLeast(limit) => format!("at least {limit}"),
        };
        let figure = median(&self.rounds);
        let range = format!("{lowest:.digits$} to {highest:.digits$}");
        [self.what.clone(), format!("{figure:.digits$}"), range, goal, self.verdict(figure)]
    }

    fn verdict(&self, figure: f64) -> String {
        let (limit, missed_by) = match self.goal {
            Goal::AtMost(limit) => (limit, figure - limit),
            Goal::AtLeast(limit) => (limit, limit - figure),
        };
        // A figure that is not a number meets no goal.
        if missed_by <= 0.0 {
            "met".into()
        } else if limit == 0.0 {
            format!("missed by {missed_by:.*}", self.digits)
        } else {
            format!("missed by {:.1} %", missed_by / limit * 100.0)
        }
    }
}

/// The table of all goals.
pub(crate) fn table(figures: &[Figure]) -> Table {
    let mut table = Table::new();
    table.set_header(["", "median", "rounds", "goal", ""]);
    table.add_rows(figures.iter().map(Figure::row));
    table
}

/// The middle one of these values, the upper one of two; not a number where there is none.
pub(crate) fn median(values: &[f64]) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    sorted.get(sorted.len() / 2).copied().unwrap_or(f64::NAN)
}
