//! Tables for a terminal.

use comfy_table::{CellAlignment, presets::UTF8_HORIZONTAL_ONLY};

use super::Table;

/// The table as lines of text. Rows that have a problem instead of figures come below it.
pub(crate) fn render(table: &Table) -> String {
    let mut grid = comfy_table::Table::new();
    grid.load_style(UTF8_HORIZONTAL_ONLY);
    grid.set_header(table.columns.iter().copied());
    let (problems, rows): (Vec<_>, Vec<_>) = table.rows.iter().partition(|row| row.len() == 2);
    for row in rows {
        grid.add_row(row);
    }
    for column in grid.column_iter_mut().skip(1) {
        column.set_cell_alignment(CellAlignment::Right);
    }
    let mut text = grid.to_string();
    for problem in problems {
        text.push_str(&format!("\n{}", problem.join(": ")));
    }
    text
}
