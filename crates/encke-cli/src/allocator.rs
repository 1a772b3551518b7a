//! The allocator of the program: mimalloc, configured to hold no more memory than is used.
//!
//! Measured when it was chosen, with 9,000 idle WebSocket sessions, resident bytes each: 2,700 by default; 1,560 without
//! transparent huge pages (feature `no_thp`) and without a delay before freed pages go back. Nearly all of it comes back
//! when the sessions leave, if the thread of each shard collects what it has freed ([`reclaim`]).
//! Neither throughput nor the time to open sessions changed.
//!
//! The one file of the project with `unsafe`: a setting and a function of a C library.
#![allow(unsafe_code)]

use libmimalloc_sys::{mi_collect, mi_option_set_default, mi_option_t};

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// Returns freed pages to the kernel at once. The environment (`MIMALLOC_PURGE_DELAY`) has precedence.
pub(crate) fn give_memory_back() {
    // SAFETY: the call stores a number into a table of the library, which is initialised before `main`; it is made once,
    // before any other thread runs, with an index of that table (checked by a test).
    unsafe { mi_option_set_default(PURGE_DELAY, 0) };
}

/// Returns the free memory of this thread to the system.
pub(crate) fn reclaim() {
    // SAFETY: works on the allocator's own data of the calling thread.
    unsafe { mi_collect(true) };
}

/// `mi_option_purge_delay` of mimalloc 3, in milliseconds; the bindings do not name it.
const PURGE_DELAY: mi_option_t = 15;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_option_is_the_delay_of_mimalloc_3() {
        // SAFETY: reads a number from the same table.
        let default_ms = unsafe { libmimalloc_sys::mi_option_get(PURGE_DELAY) };
        assert!(default_ms == 1000 || default_ms == 0, "{default_ms}: another version has other indexes");
    }
}
