//! Tests of the delivery alone.
