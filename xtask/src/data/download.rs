//! Downloads a file over HTTP, going on from what is already there.

use std::fs::File;
use std::io::{ErrorKind, Read, Seek, Write};
use std::path::Path;
use std::time::Duration;

use indicatif::{ProgressBar, ProgressStyle};
use md5::{Digest, Md5};
use ureq::Agent;
use ureq::http::Response;
use ureq::http::header::{CONTENT_LENGTH, CONTENT_RANGE, RANGE};

use super::DataError;

/// Far above any archive this is used for; it bounds what a wrong server can fill the disk with.
const LARGEST: u64 = 1 << 30;
/// Requests in one run. Each but the first goes on where the connection was cut.
const MOST_REQUESTS: u32 = 20;

/// Completes `part`, the open file at `path`, with what `url` serves.
///
/// Asks for the bytes after those that `part` has. A server that cannot do so sends everything, and `part` starts anew.
/// A connection that is cut, or silent for longer than `timeout`, is followed by another request as long as each gets
/// further than any before.
pub(super) fn download(
    url: &str,
    path: &Path,
    part: &mut File,
    timeout: Duration,
    bar: &ProgressBar,
) -> Result<(), DataError> {
    style(bar);
    let transfer = Transfer { url, path, agent: agent(timeout), bar };
    let mut furthest = length(path, part)?;
    for requests in 1.. {
        let ended = transfer.request(part)?;
        let have = length(path, part)?;
        let (wanted, source) = match ended {
            Ended::Whole => break,
            Ended::Cut { wanted, source } => (wanted, source),
        };
        if have <= furthest || requests == MOST_REQUESTS {
            let (url, part) = (url.to_owned(), path.to_path_buf());
            return Err(match source {
                Some(source) => DataError::Request { url, part, have, source },
                None => DataError::Cut { url, part, have, wanted, requests },
            });
        }
        furthest = have;
        bar.suspend(|| eprintln!("the connection was cut after {have} bytes; going on from there"));
    }
    part.sync_all().map_err(DataError::io("write", path))
}

/// How one request ended, other than in an error that asking again cannot help.
enum Ended {
    /// The file is complete, as far as the server tells.
    Whole,
    /// Bytes are missing.
    Cut { wanted: u64, source: Option<Box<ureq::Error>> },
}

struct Transfer<'a> {
    url: &'a str,
    path: &'a Path,
    agent: Agent,
    bar: &'a ProgressBar,
}

impl Transfer<'_> {
    /// Makes one request and appends what it brings to `part`.
    fn request(&self, part: &mut File) -> Result<Ended, DataError> {
        let mut have = length(self.path, part)?;
        let mut request = self.agent.get(self.url);
        if have > 0 {
            request = request.header(RANGE, format!("bytes={have}-"));
        }
        let mut response = match request.call() {
            Ok(response) => response,
            Err(source) => return Ok(Ended::Cut { wanted: 0, source: Some(Box::new(source)) }),
        };
        match response.status().as_u16() {
            206 => self.check_range(&response, have)?,
            200 => {
                if have > 0 {
                    self.bar.suspend(|| eprintln!("the server cannot go on from byte {have}; starting anew"));
                    part.set_len(0).map_err(DataError::io("empty", self.path))?;
                    have = 0;
                }
            }
            // Nothing lies after what is there already: whether it is right, the checksum will tell.
            416 if have > 0 => return Ok(Ended::Whole),
            found => return Err(DataError::Status { url: self.url.to_owned(), found }),
        }
        let announced = header(&response, CONTENT_LENGTH).and_then(|length| length.parse::<u64>().ok());
        let total = announced.map(|length| have.saturating_add(length));
        if let Some(total) = total {
            self.bar.set_length(total);
        }
        self.bar.set_position(have);

        let mut body = response.body_mut().as_reader();
        let mut buffer = vec![0; 1 << 16];
        loop {
            let read = match body.read(&mut buffer) {
                Ok(0) => break,
                Ok(read) => read,
                Err(error) if error.kind() == ErrorKind::Interrupted => continue,
                Err(error) => {
                    let source = Some(Box::new(ureq::Error::from(error)));
                    return Ok(Ended::Cut { wanted: total.unwrap_or(0), source });
                }
            };
            have += read as u64;
            if have > LARGEST {
                let (url, part) = (self.url.to_owned(), self.path.to_path_buf());
                return Err(DataError::TooLarge { url, part, limit: LARGEST });
            }
            // `read` is at most the length of the buffer.
            part.write_all(&buffer[..read]).map_err(DataError::io("write", self.path))?;
            self.bar.set_position(have);
        }
        match total {
            Some(wanted) if have < wanted => Ok(Ended::Cut { wanted, source: None }),
            _ => Ok(Ended::Whole),
        }
    }

    /// A partial answer is of use only if it starts where the file ends.
    fn check_range<T>(&self, response: &Response<T>, wanted: u64) -> Result<(), DataError> {
        let found = header(response, CONTENT_RANGE).unwrap_or_default();
        let start = found.strip_prefix("bytes ").and_then(|range| range.split('-').next());
        if start.and_then(|start| start.trim().parse().ok()) == Some(wanted) {
            return Ok(());
        }
        let (url, part) = (self.url.to_owned(), self.path.to_path_buf());
        Err(DataError::Range { url, part, found: found.to_owned(), wanted })
    }
}

/// The MD5 of the whole of `part`, in lower-case hexadecimal.
pub(super) fn md5(path: &Path, part: &mut File) -> Result<String, DataError> {
    part.rewind().map_err(DataError::io("read", path))?;
    let mut hash = Md5::new();
    let mut buffer = vec![0; 1 << 16];
    loop {
        match part.read(&mut buffer) {
            Ok(0) => return Ok(hash.finalize().iter().map(|byte| format!("{byte:02x}")).collect()),
            // `read` is at most the length of the buffer.
            Ok(read) => hash.update(&buffer[..read]),
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) => return Err(DataError::io("read", path)(error)),
        }
    }
}

/// An agent that waits for nothing longer than `timeout`, though the whole may take as long as it needs.
fn agent(timeout: Duration) -> Agent {
    Agent::config_builder()
        .timeout_resolve(Some(timeout))
        .timeout_connect(Some(timeout))
        .timeout_send_request(Some(timeout))
        .timeout_recv_response(Some(timeout))
        .timeout_per_read(Some(timeout))
        .timeout_per_write(Some(timeout))
        // A status is judged here, where 416 has a meaning of its own.
        .http_status_as_error(false)
        .user_agent(concat!("stoker-xtask/", env!("CARGO_PKG_VERSION")))
        .build()
        .into()
}

fn header<T>(response: &Response<T>, name: ureq::http::HeaderName) -> Option<&str> {
    response.headers().get(name).and_then(|value| value.to_str().ok())
}

fn length(path: &Path, part: &File) -> Result<u64, DataError> {
    part.metadata().map(|metadata| metadata.len()).map_err(DataError::io("look at", path))
}

fn style(bar: &ProgressBar) {
    let template = "{bar:40} {bytes}/{total_bytes} {bytes_per_sec} {eta}";
    // The template is fixed and valid; were it not, the default style would do.
    if let Ok(style) = ProgressStyle::with_template(template) {
        bar.set_style(style);
    }
}
