//! What reports are made of: one table, one kind of document and a few ways to draw, for whatever is measured.

mod chart;
mod document;
mod figures;
mod machine;
mod outcome;
mod table;

pub(crate) use self::{
    chart::{BarChart, ChartArea, DistributionChart, DrawResult, LEFT, beside, font, lanes, svg},
    document::{Document, DocumentBlock, date, json},
    figures::{NONE, count, in_millis, micros, millis, share, yes},
    table::{ReportTable, RowMark, TableRow},
};
pub use self::{machine::Machine, outcome::Outcome};
