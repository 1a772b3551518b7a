//! Tables of plain text, aligned, in blocks that fit a terminal.

/// A table. Its first column names the row.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Grid {
    /// True if all columns hold words, aligned to the left. Otherwise all but the first hold figures.
    pub words: bool,
    /// The columns' names.
    pub head: Vec<String>,
    /// Cells, one for each column.
    pub rows: Vec<Vec<String>>,
}

impl Grid {
    /// The table in lines of at most `width` characters. Columns that do not fit follow in further blocks, each of
    /// which repeats the first column. A single column that is too wide stays whole.
    pub fn text(&self, width: usize) -> String {
        let widths: Vec<usize> = (0..self.head.len()).map(|column| self.width(column)).collect();
        let blocks = blocks(&widths, width);
        let texts: Vec<String> = blocks.iter().map(|columns| self.block(columns, &widths)).collect();
        texts.join("\n")
    }

    /// Removes the columns that are empty in every row; the first stays.
    pub fn without_empty(mut self) -> Self {
        let says = |column: usize| column == 0 || self.rows.iter().any(|row| !row[column].is_empty());
        let nonempty: Vec<bool> = (0..self.head.len()).map(says).collect();
        let retain = |row: &mut Vec<String>| {
            let mut column = nonempty.iter();
            row.retain(|_| column.next().copied().unwrap_or(true));
        };
        retain(&mut self.head);
        self.rows.iter_mut().for_each(retain);
        self
    }

    fn width(&self, column: usize) -> usize {
        let cells = self.rows.iter().filter_map(|row| row.get(column));
        cells.chain(self.head.get(column)).map(|cell| cell.chars().count()).max().unwrap_or(0)
    }

    fn block(&self, columns: &[usize], widths: &[usize]) -> String {
        let mut text = String::new();
        for row in std::iter::once(&self.head).chain(&self.rows) {
            let mut line = String::new();
            for &column in columns {
                let (cell, width) = (row.get(column).map_or("", String::as_str), widths[column]);
                if column == 0 {
                    line += &format!("{cell:width$}");
                } else if self.words {
                    line += &format!("{:GAP$}{cell:width$}", "");
                } else {
                    line += &format!("{:GAP$}{cell:>width$}", "");
                }
            }
            text += line.trim_end();
            text.push('\n');
        }
        text
    }
}

/// A text in lines of at most `width` characters, broken at spaces.
pub fn wrapped(text: &str, width: usize) -> Vec<String> {
    let mut lines = vec![String::new()];
    let mut used = 0;
    for word in text.split_whitespace() {
        let length = word.chars().count();
        if used > 0 && used + 1 + length > width {
            lines.push(String::new());
            used = 0;
        }
        if let Some(line) = lines.last_mut() {
            if used > 0 {
                line.push(' ');
                used += 1;
            }
            line.push_str(word);
            used += length;
        }
    }
    lines
}

/// At most `limit` characters, the last of them `…` if some had to go.
pub fn shortened(text: &str, limit: usize) -> String {
    match text.char_indices().nth(limit) {
        None => text.into(),
        Some(_) => text.chars().take(limit.saturating_sub(1)).chain(['…']).collect(),
    }
}

/// One line without control characters, so that outside data cannot move a terminal's cursor.
pub fn one_line(text: &str) -> String {
    text.chars().map(|char| if char.is_control() { ' ' } else { char }).collect()
}

fn blocks(widths: &[usize], limit: usize) -> Vec<Vec<usize>> {
    let first = widths.first().copied().unwrap_or(0);
    let mut blocks = vec![vec![0]];
    let mut used = first;
    for (column, width) in widths.iter().enumerate().skip(1) {
        if used + GAP + width > limit && blocks.last().is_some_and(|block| block.len() > 1) {
            blocks.push(vec![0]);
            used = first;
        }
        if let Some(block) = blocks.last_mut() {
            block.push(column);
        }
        used += GAP + width;
    }
    if widths.is_empty() { Vec::new() } else { blocks }
}

/// Spaces between columns.
const GAP: usize = 2;

#[cfg(test)]
mod tests {
    use super::*;

    fn grid(head: &[&str], row: &[&str]) -> Grid {
        let strings = |texts: &[&str]| texts.iter().map(|text| (*text).into()).collect();
        Grid { words: false, head: strings(head), rows: vec![strings(row)] }
    }

    #[test]
    fn figures_stand_on_the_right() {
        assert_eq!(grid(&["what", "p99"], &["a", "12 ms"]).text(40), "what    p99\na     12 ms\n");
    }

    #[test]
    fn columns_that_do_not_fit_follow_in_a_further_block() {
        let text = grid(&["what", "one", "two"], &["a", "1234567", "89"]).text(14);
        assert_eq!(text, "what      one\na     1234567\n\nwhat  two\na      89\n");
    }

    #[test]
    fn columns_without_a_word_go() {
        assert_eq!(grid(&["what", "one", "two"], &["a", "", "2"]).without_empty(), grid(&["what", "two"], &["a", "2"]));
    }

    #[test]
    fn an_empty_table_is_an_empty_text() {
        assert_eq!(Grid::default().text(80), "");
    }

    #[test]
    fn long_texts_break_at_spaces_or_end_in_an_ellipsis() {
        assert_eq!(wrapped("one two three", 7), ["one two", "three"]);
        assert_eq!(shortened("abcdef", 4), "abc…");
        assert_eq!(one_line("a\x1b[2Jb\n"), "a [2Jb ");
    }
}
