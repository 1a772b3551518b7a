//! What can be measured: one file a scenario.
