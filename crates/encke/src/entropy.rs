//! Random numbers for ids that cannot be guessed.

use encke_core::Entropy;

/// Random bytes from the kernel.
pub(crate) fn kernel_entropy() -> Entropy {
    Box::new(|bytes| {
        // Without random numbers no session is safe. The kernel has them from boot on.
        getrandom::fill(bytes).expect("the kernel gives random bytes");
    })
}
