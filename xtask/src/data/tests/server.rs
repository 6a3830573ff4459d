//! A local HTTP server that plays a script, for the tests of the downloader.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{Builder, JoinHandle};

/// How the server answers one request.
#[derive(Debug, Clone, Copy)]
pub(super) enum Reply {
    /// As a good server does, honouring a range.
    Good,
    /// With everything, whatever range is asked for.
    Everything,
    /// As `Good`, but closes after so many bytes of the body.
    CutAfter(usize),
    /// As `Everything`, but closes after so many bytes of the body.
    EverythingCutAfter(usize),
    /// As `Good`, but falls silent after so many bytes and waits for the client to hang up.
    SilentAfter(usize),
    /// Accepts the request and never answers.
    Silent,
    /// With a range from the first byte on, whatever was asked for.
    WrongRange,
    /// With this status and no body.
    Status(u16),
}

/// A server on a thread of its own.
pub(super) struct Server {
    address: SocketAddr,
    stop: Arc<AtomicBool>,
    thread: JoinHandle<Vec<Option<usize>>>,
}

impl Server {
    /// Serves `body`, answering the first request with the first of `script` and so on, and any further one with 500.
    pub(super) fn start(body: Vec<u8>, script: Vec<Reply>) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let stop = Arc::new(AtomicBool::new(false));
        let stopped = Arc::clone(&stop);
        let serve = move || {
            let mut script = script.into_iter();
            let mut starts = Vec::new();
            loop {
                let (stream, _) = listener.accept().unwrap();
                if stopped.load(Ordering::SeqCst) {
                    return starts;
                }
                starts.push(answer(stream, &body, script.next().unwrap_or(Reply::Status(500))));
            }
        };
        let thread = Builder::new().name("test-http-server".to_owned()).spawn(serve).unwrap();
        Self { address, stop, thread }
    }

    pub(super) fn url(&self) -> String {
        format!("http://{}/archive.tar.gz", self.address)
    }

    /// Stops the server; for each request, the byte that it asked to start from.
    pub(super) fn finish(self) -> Vec<Option<usize>> {
        self.stop.store(true, Ordering::SeqCst);
        // A connection of our own wakes the thread up to see it.
        drop(TcpStream::connect(self.address).unwrap());
        self.thread.join().unwrap()
    }
}

/// Answers one request; the byte that it asked to start from. A client that hangs up early is no error.
fn answer(mut stream: TcpStream, body: &[u8], reply: Reply) -> Option<usize> {
    let asked = read_request(&stream);
    let start = asked.unwrap_or(0);
    match reply {
        Reply::Good | Reply::CutAfter(_) | Reply::SilentAfter(_) if asked.is_some() && start >= body.len() => {
            send(&mut stream, "416 Range Not Satisfiable", "Content-Length: 0\r\n", &[]);
        }
        Reply::Good => send_from(&mut stream, body, asked, usize::MAX),
        Reply::CutAfter(bytes) => send_from(&mut stream, body, asked, bytes),
        Reply::Everything => send_from(&mut stream, body, None, usize::MAX),
        Reply::EverythingCutAfter(bytes) => send_from(&mut stream, body, None, bytes),
        Reply::SilentAfter(bytes) => {
            send_from(&mut stream, body, asked, bytes);
            wait_for_hang_up(&mut stream);
        }
        Reply::Silent => wait_for_hang_up(&mut stream),
        Reply::WrongRange => {
            let head = format!("Content-Range: bytes 0-{}/{}\r\n", body.len() - 1, body.len());
            send(&mut stream, "206 Partial Content", &head, body);
        }
        Reply::Status(status) => send(&mut stream, &format!("{status} As Scripted"), "Content-Length: 0\r\n", &[]),
    }
    asked
}

/// Reads a request to the end of its head; the start of the range in it.
fn read_request(stream: &TcpStream) -> Option<usize> {
    let mut start = None;
    for line in BufReader::new(stream).lines() {
        let line = line.unwrap().to_ascii_lowercase();
        if line.is_empty() {
            break;
        }
        if let Some(range) = line.strip_prefix("range: bytes=") {
            start = Some(range.strip_suffix('-').unwrap().parse().unwrap());
        }
    }
    start
}

/// Announces all of `body` from `asked` on, and sends at most `most` bytes of it.
fn send_from(stream: &mut TcpStream, body: &[u8], asked: Option<usize>, most: usize) {
    let rest = &body[asked.unwrap_or(0)..];
    let mut head = format!("Content-Length: {}\r\n", rest.len());
    if let Some(start) = asked {
        head += &format!("Content-Range: bytes {start}-{}/{}\r\n", body.len() - 1, body.len());
    }
    let status = if asked.is_some() { "206 Partial Content" } else { "200 OK" };
    send(stream, status, &head, &rest[..most.min(rest.len())]);
}

fn send(stream: &mut TcpStream, status: &str, head: &str, body: &[u8]) {
    let head = format!("HTTP/1.1 {status}\r\n{head}Connection: close\r\n\r\n");
    let _ = stream.write_all(head.as_bytes()).and_then(|()| stream.write_all(body));
}

fn wait_for_hang_up(stream: &mut TcpStream) {
    let _ = stream.read_to_end(&mut Vec::new());
}
