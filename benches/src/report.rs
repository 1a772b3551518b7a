//! Turns result lines into a table and a chart.
