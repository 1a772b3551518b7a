//! The limit of open files, and so of sockets, of this process.

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use crate::problem::Problem;

/// Raises the limit of open files so that `sockets` sockets fit.
///
/// # Errors
/// [`Problem::Machine`] with both figures, if the hard limit is too low.
pub fn allow_sockets(sockets: u64) -> Result<(), Problem> {
    let wanted = sockets.saturating_add(SPARE_FILES);
    let limit = getrlimit(Resource::Nofile);
    let allowed = limit.maximum.unwrap_or(u64::MAX);
    if wanted > allowed {
        return Err(Problem::Machine(format!(
            "{wanted} open files are needed for {sockets} sockets, the system allows {allowed}; raise it (ulimit -Hn), \
             or ask for fewer in each process"
        )));
    }
    if limit.current.is_some_and(|current| current < wanted) {
        setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, maximum: limit.maximum })?;
    }
    Ok(())
}

/// Files beside the sockets: standard streams, epoll, `/proc`, pipes to workers.
const SPARE_FILES: u64 = 32;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn too_many_files_are_refused_with_the_figures() {
        let Err(Problem::Machine(text)) = allow_sockets(u64::MAX - 1) else { return };
        assert!(text.contains("open files") && text.contains("the system allows"), "{text}");
    }

    #[test]
    fn a_few_sockets_are_always_allowed() {
        assert!(allow_sockets(8).is_ok());
    }
}
