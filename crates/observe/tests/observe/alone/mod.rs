//! Tests of what the whole machine does: nothing else may run beside them.

mod locks;
mod trace;
