//! Reports in all their forms.

mod formats;
mod pages;
mod samples;
