//! Text in columns: cut to a terminal's width, whole in a pipe, and never what a terminal obeys.

use unicode_width::{UnicodeWidthChar, UnicodeWidthStr};

use logging::escape::shown;

/// Between two columns.
const GAP: &str = "  ";

/// The narrowest that a column of text is made: enough to see which one it is.
const TEXT_WIDTH_MIN: usize = 8;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    /// What a client chose: cut where the line is short.
    Text,
    /// Whole, to the left.
    Word,
    /// Whole, to the right.
    Number,
}

/// A table of `N` columns that is written piece by piece. Columns grow with what comes and never shrink.
#[derive(Debug)]
pub(super) struct Table<const N: usize> {
    columns: [(&'static str, Kind); N],
    /// Of a line; `None` is endless.
    width_max: Option<usize>,
    widths: [usize; N],
}

impl<const N: usize> Table<N> {
    pub(super) fn new(columns: [(&'static str, Kind); N], width_max: Option<usize>) -> Self {
        Self { columns, width_max, widths: columns.map(|(title, _)| title.len()) }
    }

    /// The line of titles and these rows. A table begins with it.
    pub(super) fn begin(&mut self, rows: Vec<[String; N]>) -> String {
        let rows = self.fit(rows);
        let titles = self.columns.map(|(title, _)| title.to_owned());
        self.lines(std::iter::once(&titles).chain(&rows))
    }

    /// Further rows.
    pub(super) fn go_on(&mut self, rows: Vec<[String; N]>) -> String {
        let rows = self.fit(rows);
        self.lines(&rows)
    }

    /// Escapes rows and makes place for them.
    fn fit(&mut self, rows: Vec<[String; N]>) -> Vec<[String; N]> {
        let rows: Vec<_> = rows.into_iter().map(|row| row.map(|cell| shown(&cell))).collect();
        for (column, width) in self.widths.iter_mut().enumerate() {
            let widest = rows.iter().map(|row| row[column].width()).max();
            *width = (*width).max(widest.unwrap_or_default());
        }
        rows
    }

    fn lines<'a>(&self, rows: impl IntoIterator<Item = &'a [String; N]>) -> String {
        let widths = self.allotted();
        rows.into_iter().map(|row| self.line(row, widths)).collect()
    }

    fn line(&self, cells: &[String; N], widths: [usize; N]) -> String {
        let mut line = String::new();
        for ((cell, (_, kind)), width) in cells.iter().zip(self.columns).zip(widths) {
            if !line.is_empty() {
                line += GAP;
            }
            let cell = if kind == Kind::Text { cut(cell, width) } else { cell.clone() };
            let padding = " ".repeat(width.saturating_sub(cell.width()));
            line += &if kind == Kind::Number { padding + &cell } else { cell + &padding };
        }
        line.truncate(line.trim_end().len());
        line + "\n"
    }

    /// The columns' widths on a line that may be too short for all: texts share what the others leave, the
    /// widest giving way first.
    fn allotted(&self) -> [usize; N] {
        let mut widths = self.widths;
        let Some(width_max) = self.width_max else { return widths };
        let gaps = GAP.len() * (N - 1);
        let is_text = |column: &usize| self.columns[*column].1 == Kind::Text;
        while widths.iter().sum::<usize>() + gaps > width_max {
            let widest = (0..N).filter(is_text).max_by_key(|column| widths[*column]);
            match widest {
                Some(column) if widths[column] > TEXT_WIDTH_MIN => widths[column] -= 1,
                _ => break,
            }
        }
        widths
    }
}

/// The text in at most so many columns of a terminal, ending in … where something is missing.
pub(super) fn cut(text: &str, width_max: usize) -> String {
    if text.width() <= width_max {
        return text.to_owned();
    }
    let mut left = width_max.saturating_sub(1);
    let fits = |c: &char| {
        let width = c.width().unwrap_or_default();
        let fits = width <= left;
        left = left.saturating_sub(width);
        fits
    };
    text.chars().take_while(fits).chain(['…']).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const COLUMNS: [(&str, Kind); 3] = [("NAME", Kind::Text), ("WHERE", Kind::Word), ("N", Kind::Number)];

    fn row(cells: [&str; 3]) -> [String; 3] {
        cells.map(str::to_owned)
    }

    #[test]
    fn columns_are_as_wide_as_they_need_and_grow_with_later_rows() {
        let mut table = Table::new(COLUMNS, None);
        let text = table.begin(vec![row(["a", "here", "1"]), row(["longer", "", "100"])]);
        assert_eq!(text, "NAME    WHERE    N\na       here     1\nlonger         100\n");
        assert_eq!(table.go_on(vec![row(["b", "elsewhere", "2"])]), "b       elsewhere    2\n");
        assert_eq!(Table::new(COLUMNS, None).begin(vec![]), "NAME  WHERE  N\n");
    }

    #[test]
    fn a_text_gives_way_on_a_short_line_and_nothing_else_does() {
        let name = "x".repeat(100);
        let text = Table::new(COLUMNS, Some(40)).begin(vec![row([&name, "203.0.113.77:65535", "12345"])]);
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(lines[1], format!("{}…  203.0.113.77:65535  12345", "x".repeat(12)));
        assert!(lines.iter().all(|line| line.chars().count() <= 40), "{text}");
        // Too short for all of it: it is wrapped by the terminal, and no column vanishes.
        let text = Table::new(COLUMNS, Some(10)).begin(vec![row([&name, "203.0.113.77:65535", "1"])]);
        assert!(text.contains("xxxxxxx…  203.0.113.77:65535  1\n"), "{text}");
    }

    #[test]
    fn two_texts_share_the_line_and_a_short_one_is_left_whole() {
        let columns = [("A", Kind::Text), ("B", Kind::Text)];
        let cells = |a: usize, b: usize| vec![["a".repeat(a), "b".repeat(b)]];
        let line = |cells| Table::new(columns, Some(42)).begin(cells).lines().last().unwrap().to_owned();
        assert_eq!(line(cells(100, 100)), format!("{}…  {}…", "a".repeat(19), "b".repeat(19)));
        assert_eq!(line(cells(10, 100)), format!("{}  {}…", "a".repeat(10), "b".repeat(29)));
        assert_eq!(line(cells(100, 10)), format!("{}…  {}", "a".repeat(29), "b".repeat(10)));
    }

    #[test]
    fn what_a_terminal_would_obey_is_shown_as_an_escape_and_cut_as_one() {
        let text = Table::new(COLUMNS, None).begin(vec![row(["a\n\u{1b}[2J\u{202e}", "", "1"])]);
        assert_eq!(text.lines().nth(1), Some("a\\u000a\\u001b[2J\\u202e         1"));
        assert_eq!(cut("\\u000a\\u000a", 8), "\\u000a\\…");
    }

    #[test]
    fn wide_characters_count_as_the_two_columns_that_they_take() {
        assert_eq!(cut("日本語", 6), "日本語");
        assert_eq!(cut("日本語", 5), "日本…");
        assert_eq!(cut("日本語", 4), "日…");
        assert_eq!(cut("éé", 1), "…");
        let text = Table::new(COLUMNS, None).begin(vec![row(["日本語", "x", "1"]), row(["éé", "x", "1"])]);
        assert_eq!(text, "NAME    WHERE  N\n日本語  x      1\néé      x      1\n");
    }
}
