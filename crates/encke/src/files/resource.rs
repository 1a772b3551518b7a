//! A file with its compressed forms, and the response to a request for it (RFC 9110 §8.4, §13 and §14).

use std::sync::Arc;

use bytes::Bytes;
use http::header::{
    ACCEPT_RANGES, CACHE_CONTROL, CONTENT_ENCODING, CONTENT_RANGE, CONTENT_SECURITY_POLICY, CONTENT_TYPE, ETAG,
    HeaderMap, HeaderValue, LAST_MODIFIED, RANGE, VARY,
};
use http::{Method, Request, Response, StatusCode};

use super::account::OpenFile;
use super::body::{FileBody, Room};
use super::conditions::{Outcome, Validators};
use super::range::Part;
use crate::accept_encoding::preferred;
use crate::asset::Asset;

/// A file in all its forms.
pub(crate) struct Resource {
    itself: Form,
    /// The compressed forms. A client gets the first one of those that it prefers.
    encoded: Vec<Form>,
}

/// One form of a file.
pub(super) struct Form {
    coding: &'static str,
    validators: Validators,
    /// The fields of each response with it.
    fields: HeaderMap,
    content: Content,
}

/// The bytes of a form.
pub(super) enum Content {
    /// In memory.
    Memory(Bytes),
    /// On the disk, so many.
    Disk(Arc<OpenFile>, u64),
}

impl Resource {
    /// A file of a directory.
    pub(super) fn new(itself: Form, mut encoded: Vec<Form>) -> Resource {
        encoded.sort_by_key(|form| form.content.bytes());
        let mut resource = Resource { itself, encoded };
        if !resource.encoded.is_empty() {
            let forms = resource.encoded.iter_mut().chain([&mut resource.itself]);
            forms.for_each(|form| _ = form.fields.insert(VARY, HeaderValue::from_static("accept-encoding")));
        }
        resource
    }

    /// A file of the program.
    pub(crate) fn of_asset(asset: &Asset) -> Resource {
        let policy = HeaderValue::from_static(asset.content_security_policy);
        let form = |coding, body: &'static [u8], etag| {
            let etag = HeaderValue::from_static(etag);
            let validators = Validators { etag, modified: None, is_date_strong: false };
            let kind = HeaderValue::from_static(asset.content_type);
            let mut form = Form::new(coding, validators, kind, NO_CACHE, Content::Memory(Bytes::from_static(body)));
            form.fields.insert(CONTENT_SECURITY_POLICY, policy.clone());
            form
        };
        let encoded = asset.encoded.iter().map(|encoded| form(encoded.coding, encoded.body, encoded.etag)).collect();
        Resource::new(form("", asset.body, asset.etag), encoded)
    }

    /// The response to a GET or HEAD request.
    pub(crate) fn respond<B>(&self, request: &Request<B>, room: &Room) -> Response<FileBody> {
        let headers = request.headers();
        let form = preferred(&self.encoded, |form| form.coding, headers).unwrap_or(&self.itself);
        let bytes = form.content.bytes();
        let range = headers.get(RANGE).filter(|_| *request.method() == Method::GET);
        let range = range.filter(|_| headers.get_all(RANGE).iter().count() == 1).and_then(|range| range.to_str().ok());
        let part = match (form.validators.evaluate(headers), range) {
            (Outcome::Send, Some(range)) => Part::of(range, bytes),
            (Outcome::Send | Outcome::SendWhole, _) => Part::Whole,
            (Outcome::NotModified, _) => return form.response(StatusCode::NOT_MODIFIED, FileBody::Whole(Bytes::new())),
            (Outcome::Failed, _) => return refusal(StatusCode::PRECONDITION_FAILED, "this file is another one\n"),
        };
        match part {
            Part::Whole => form.response(StatusCode::OK, form.content.part(0, bytes, room)),
            Part::Bytes { first, last } => {
                let body = form.content.part(first, last + 1, room);
                with_range(form.response(StatusCode::PARTIAL_CONTENT, body), &format!("bytes {first}-{last}/{bytes}"))
            }
            Part::Unsatisfiable => {
                let refusal = refusal(StatusCode::RANGE_NOT_SATISFIABLE, "the file ends before this range\n");
                with_range(refusal, &format!("bytes */{bytes}"))
            }
        }
    }
}

impl Form {
    /// A form of this media type, which is the file itself if the coding is empty.
    pub(super) fn new(
        coding: &'static str,
        validators: Validators,
        kind: HeaderValue,
        cache_control: HeaderValue,
        content: Content,
    ) -> Form {
        let mut fields = HeaderMap::with_capacity(FIELDS);
        fields.insert(CONTENT_TYPE, kind);
        fields.insert(CACHE_CONTROL, cache_control);
        fields.insert(ACCEPT_RANGES, HeaderValue::from_static("bytes"));
        fields.insert(ETAG, validators.etag.clone());
        let modified = validators.modified.map(httpdate::fmt_http_date).and_then(|date| date.try_into().ok());
        modified.into_iter().for_each(|date: HeaderValue| _ = fields.insert(LAST_MODIFIED, date));
        if !coding.is_empty() {
            fields.insert(CONTENT_ENCODING, HeaderValue::from_static(coding));
        }
        Form { coding, validators, fields, content }
    }

    fn response(&self, status: StatusCode, body: FileBody) -> Response<FileBody> {
        let mut response = Response::new(body);
        *response.status_mut() = status;
        *response.headers_mut() = self.fields.clone();
        response
    }
}

impl Content {
    fn bytes(&self) -> u64 {
        match self {
            Content::Memory(bytes) => bytes.len() as u64,
            Content::Disk(_, bytes) => *bytes,
        }
    }

    fn part(&self, first: u64, end: u64, room: &Room) -> FileBody {
        match self {
            Content::Memory(bytes) => FileBody::Whole(bytes.slice(first as usize..end as usize)),
            Content::Disk(file, _) => FileBody::of_file(file.clone(), first, end, room),
        }
    }
}

fn with_range(mut response: Response<FileBody>, range: &str) -> Response<FileBody> {
    let range = HeaderValue::try_from(range).ok();
    range.into_iter().for_each(|range| _ = response.headers_mut().insert(CONTENT_RANGE, range));
    response
}

fn refusal(status: StatusCode, text: &'static str) -> Response<FileBody> {
    let mut response = Response::new(FileBody::Whole(Bytes::from_static(text.as_bytes())));
    *response.status_mut() = status;
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("text/plain; charset=utf-8"));
    response
}

/// The field `Cache-Control` without a rule: a browser asks each time if it has the file.
pub(super) const NO_CACHE: HeaderValue = HeaderValue::from_static("no-cache");
/// Room for all fields of a response.
const FIELDS: usize = 12;
