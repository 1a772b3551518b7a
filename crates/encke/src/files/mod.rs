//! Files for clients: those of a directory (setting `files`) and those that are part of the program. Both are resources, and one
//! function answers requests for them.

mod account;
mod body;
mod cache;
mod conditions;
mod directory;
mod listing;
mod preload;
mod range;
mod resource;
mod tree;

pub(crate) use self::body::{FileBody, Room};
pub(crate) use self::directory::{Directory, Found};
pub(crate) use self::preload::check as check_preload;
pub(crate) use self::resource::Resource;
