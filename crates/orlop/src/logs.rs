//! Containers' logs for `kubectl logs`, read from the nodes' folders.
//!
//! A shim puts a log that grew too long aside as `log.1` and begins a new `log`. A reader that
//! follows goes on from the one to the next; one that does not reads the newest alone.

use std::{
    collections::BTreeMap,
    fs::File,
    io::{self, Read, Seek, SeekFrom},
    os::unix::fs::{FileExt, MetadataExt},
    path::{Path, PathBuf},
};

use bytes::Bytes;
use futures::{FutureExt, StreamExt, future::BoxFuture, stream};
use jiff::Timestamp;
use orlop_apiserver::{LogError, LogRequest, LogSource, LogStream};
use orlop_host::{
    folder_watch::{FolderEvent, FolderWatch},
    sandbox::log::Line,
};
use orlop_node::{PodUid, Run, log_path};

/// How much of a log is read at a time.
const CHUNK: usize = 64 * 1024;

/// The logs of the nodes of this process, by node.
pub(crate) struct Logs {
    pub(crate) roots: BTreeMap<String, PathBuf>,
}

impl LogSource for Logs {
    fn open(&self, request: LogRequest) -> BoxFuture<'_, Result<LogStream, LogError>> {
        async move {
            let run = if request.previous {
                Run::Previous
            } else {
                Run::Latest
            };
            let path = self
                .roots
                .get(&request.node)
                .zip(PodUid::new(&request.uid))
                .and_then(|(root, uid)| log_path(root, &uid, &request.container, run))
                .filter(|path| path.exists())
                .ok_or_else(|| LogError::NotReady(absent(&request)))?;
            let limit = request.limit_bytes;
            // Finding the last lines may read all of a log.
            let reader = tokio::task::spawn_blocking(move || Reader::open(&path, &request))
                .await
                .unwrap_or_else(|stopped| Err(io::Error::other(stopped)))
                .map_err(LogError::Read)?;
            Ok(reader.stream(limit))
        }
        .boxed()
    }
}

fn absent(request: &LogRequest) -> String {
    let LogRequest {
        container,
        pod,
        previous,
        ..
    } = request;
    if *previous {
        format!("previous terminated container \"{container}\" in pod \"{pod}\" not found")
    } else {
        format!("container \"{container}\" in pod \"{pod}\" is waiting to start: ContainerCreating")
    }
}

/// Reads a log from its beginning, then as it grows.
struct Reader {
    file: File,
    /// Tells when there is more, if somebody wants to follow.
    growth: Option<FolderWatch>,
    path: PathBuf,
    folder: PathBuf,
    /// Bytes of a line whose end is not there yet.
    partial: Vec<u8>,
    filter: Filter,
}

/// Which lines are wanted, and how they look.
#[derive(Clone, Copy)]
struct Filter {
    since: Option<Timestamp>,
    timestamps: bool,
}

impl Filter {
    fn wanted(self, raw: &[u8]) -> Option<Line<'_>> {
        Line::parse(raw).filter(|line| self.since.is_none_or(|since| line.at >= since))
    }

    /// A line as kubectl prints it.
    fn show(self, raw: &[u8]) -> Option<Vec<u8>> {
        let line = self.wanted(raw)?;
        let mut shown = Vec::with_capacity(line.text.len() + 1);
        if self.timestamps {
            shown.extend_from_slice(format!("{:.9} ", line.at).as_bytes());
        }
        shown.extend_from_slice(line.text);
        if line.ends {
            shown.push(b'\n');
        }
        Some(shown)
    }
}

impl Reader {
    fn open(path: &Path, request: &LogRequest) -> io::Result<Self> {
        let folder = path.parent().unwrap_or(Path::new("/")).to_owned();
        // Watched before the first read, so that nothing falls between the two.
        let growth = request
            .follow
            .then(|| FolderWatch::on_contents(&folder))
            .transpose()?;
        let filter = Filter {
            since: request.since,
            timestamps: request.timestamps,
        };
        let mut file = File::open(path)?;
        if let Some(lines) = request.tail_lines {
            let start = tail(&file, filter, usize::try_from(lines).unwrap_or(usize::MAX))?;
            file.seek(SeekFrom::Start(start))?;
        }
        Ok(Self {
            file,
            growth,
            path: path.to_owned(),
            folder,
            partial: Vec::new(),
            filter,
        })
    }

    fn stream(self, limit: Option<u64>) -> LogStream {
        let mut left = usize::try_from(limit.unwrap_or(u64::MAX)).unwrap_or(usize::MAX);
        let chunks = stream::try_unfold(self, |mut reader| async move {
            let chunk = reader.next().await?;
            Ok::<_, io::Error>(chunk.map(|chunk| (chunk, reader)))
        });
        chunks
            .map(move |chunk| {
                chunk.map(|bytes| {
                    let bytes = bytes.slice(..bytes.len().min(left));
                    left -= bytes.len();
                    (bytes, left)
                })
            })
            .scan(false, |full, item| {
                let next = if *full { None } else { Some(item) };
                *full = matches!(next, Some(Ok((_, 0))));
                std::future::ready(next)
            })
            .map(|item| item.map(|(bytes, _)| bytes))
            .boxed()
    }

    /// More of the log; `None` at its end, which is the container's end when following.
    async fn next(&mut self) -> io::Result<Option<Bytes>> {
        loop {
            // Asked before reading: what was written before the end is then read for sure.
            let ended = self.folder.join("exit.json").exists();
            // Asked before reading too: what was put aside grows no more.
            let aside = self.growth.is_some() && self.is_put_aside();
            let mut buffer = vec![0; CHUNK];
            let read = self.file.read(&mut buffer)?;
            if read > 0 {
                self.partial.extend_from_slice(&buffer[..read]);
                let shown = self.complete_lines();
                if !shown.is_empty() {
                    return Ok(Some(shown.into()));
                }
                continue;
            }
            if aside && let Some(next) = self.successor()? {
                self.file = next;
                self.partial.clear();
                continue;
            }
            match &mut self.growth {
                Some(growth) if !ended => {
                    if growth.next().await? == FolderEvent::Gone {
                        // Nothing more will be told; what there is, is read to its end.
                        self.growth = None;
                    }
                }
                _ => return Ok(None),
            }
        }
    }

    /// Whether `log` is another file than the one being read. While that one is open, no other
    /// can have its number.
    fn is_put_aside(&self) -> bool {
        match (std::fs::metadata(&self.path), self.file.metadata()) {
            (Ok(newest), Ok(ours)) => !same(&newest, &ours),
            _ => false,
        }
    }

    /// The file after the one being read. A slow reader may find that there is one between the
    /// two; it skips only what is no longer there.
    fn successor(&self) -> io::Result<Option<File>> {
        let ours = self.file.metadata()?;
        // In this order: should `log` be put aside in between, `log.1` is then that same file.
        let Some(newest) = present(File::open(&self.path))? else {
            return Ok(None);
        };
        if let Some(old) = present(File::open(self.path.with_extension("1")))?
            && !same(&old.metadata()?, &ours)
        {
            return Ok(Some(old));
        }
        Ok(Some(newest))
    }

    fn complete_lines(&mut self) -> Vec<u8> {
        let Some(end) = self.partial.iter().rposition(|b| *b == b'\n') else {
            return Vec::new();
        };
        let rest = self.partial.split_off(end + 1);
        let lines = std::mem::replace(&mut self.partial, rest);
        lines
            .split(|b| *b == b'\n')
            .filter_map(|raw| self.filter.show(raw))
            .flatten()
            .collect()
    }
}

fn same(a: &std::fs::Metadata, b: &std::fs::Metadata) -> bool {
    (a.dev(), a.ino()) == (b.dev(), b.ino())
}

fn present(file: io::Result<File>) -> io::Result<Option<File>> {
    match file {
        Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(None),
        other => other.map(Some),
    }
}

/// Where the last so many lines begin; looked for from the end, a part at a time.
fn tail(file: &File, filter: Filter, lines: usize) -> io::Result<u64> {
    let end = file.metadata()?.len();
    let mut last = LastLines {
        filter,
        missing: lines,
        earliest: None,
    };
    // What begins at `at` and was not looked at yet.
    let mut held = Vec::new();
    let mut at = end;
    while at > 0 && last.missing > 0 {
        let begin = at.saturating_sub(CHUNK as u64);
        let mut part = vec![0; usize::try_from(at - begin).map_err(io::Error::other)?];
        file.read_exact_at(&mut part, begin)?;
        part.append(&mut held);
        (held, at) = (part, begin);
        // The first line may have begun before this part.
        let whole = match held.iter().position(|b| *b == b'\n') {
            _ if at == 0 => 0,
            Some(feed) => feed + 1,
            None => continue,
        };
        let mut stop = held.len();
        while stop > whole && last.missing > 0 {
            let start = held[whole..stop - 1]
                .iter()
                .rposition(|b| *b == b'\n')
                .map_or(whole, |feed| whole + feed + 1);
            let raw = &held[start..stop];
            last.meet(raw.strip_suffix(b"\n").unwrap_or(raw), at + start as u64);
            stop = start;
        }
        held.truncate(whole);
    }
    Ok(last.earliest.unwrap_or(end))
}

/// Counts wanted lines backwards.
struct LastLines {
    filter: Filter,
    /// How many are not found yet.
    missing: usize,
    /// Where the earliest piece begins that belongs to them.
    earliest: Option<u64>,
}

impl LastLines {
    /// A line in pieces counts once: it is found whole when the end of the one before is met.
    fn meet(&mut self, raw: &[u8], at: u64) {
        let Some(line) = self.filter.wanted(raw) else {
            return;
        };
        if line.ends && self.earliest.is_some() {
            self.missing -= 1;
        }
        if self.missing > 0 {
            self.earliest = Some(at);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::{fs, io::Write, time::Duration};

    use super::*;

    fn request(change: impl FnOnce(&mut LogRequest)) -> LogRequest {
        let mut request = LogRequest {
            namespace: "default".into(),
            pod: "web".into(),
            uid: "u1".into(),
            node: "n1".into(),
            container: "main".into(),
            follow: false,
            previous: false,
            timestamps: false,
            tail_lines: None,
            limit_bytes: None,
            since: None,
        };
        change(&mut request);
        request
    }

    struct Scene {
        root: tempfile::TempDir,
        folder: PathBuf,
        logs: Logs,
    }

    fn scene(content: &str) -> Scene {
        let root = tempfile::tempdir().unwrap();
        let folder = root.path().join("pods/u1/containers/main/0");
        fs::create_dir_all(&folder).unwrap();
        fs::write(folder.join("log"), content).unwrap();
        let logs = Logs {
            roots: BTreeMap::from([("n1".into(), root.path().to_owned())]),
        };
        Scene { root, folder, logs }
    }

    async fn read(scene: &Scene, request: LogRequest) -> String {
        let stream = scene
            .logs
            .open(request)
            .await
            .unwrap_or_else(|e| panic!("{e}"));
        let all = stream.map(|chunk| chunk.unwrap().to_vec()).concat();
        let all = tokio::time::timeout(Duration::from_secs(10), all)
            .await
            .unwrap();
        String::from_utf8(all).unwrap()
    }

    const THREE: &str = "2026-01-01T00:00:01Z stdout F one\n\
                         2026-01-01T00:00:02Z stderr P tw\n\
                         2026-01-01T00:00:02Z stderr F o\n\
                         2026-01-01T00:00:03Z stdout F three\n";

    #[tokio::test]
    async fn lines_come_plain_and_pieces_are_joined() {
        let scene = scene(THREE);
        assert_eq!(read(&scene, request(|_| {})).await, "one\ntwo\nthree\n");
    }

    #[tokio::test]
    async fn a_part_can_be_asked_for() {
        let scene = scene(THREE);
        assert_eq!(
            read(&scene, request(|r| r.tail_lines = Some(2))).await,
            "two\nthree\n"
        );
        assert_eq!(read(&scene, request(|r| r.tail_lines = Some(0))).await, "");
        assert_eq!(
            read(&scene, request(|r| r.limit_bytes = Some(5))).await,
            "one\nt"
        );
        let since = "2026-01-01T00:00:03Z".parse().ok();
        assert_eq!(read(&scene, request(|r| r.since = since)).await, "three\n");
        let stamped = read(&scene, request(|r| r.timestamps = true)).await;
        assert!(
            stamped.starts_with("2026-01-01T00:00:01.000000000Z one\n"),
            "{stamped}"
        );
    }

    #[tokio::test]
    async fn following_goes_on_until_the_container_ends() {
        let scene = scene(THREE);
        let log = scene.folder.join("log");
        let exit = scene.folder.join("exit.json");
        let writer = tokio::spawn(async move {
            tokio::time::sleep(Duration::from_millis(20)).await;
            let mut file = fs::File::options().append(true).open(log).unwrap();
            file.write_all(b"2026-01-01T00:00:04Z stdout F four\n")
                .unwrap();
            tokio::time::sleep(Duration::from_millis(20)).await;
            fs::write(exit, "{}").unwrap();
        });
        let said = read(
            &scene,
            request(|r| (r.follow, r.tail_lines) = (true, Some(1))),
        )
        .await;
        assert_eq!(said, "three\nfour\n");
        writer.await.unwrap();
    }

    #[tokio::test]
    async fn following_goes_on_in_the_next_file_when_a_log_is_put_aside() {
        let scene = scene(THREE);
        let folder = scene.folder.clone();
        let line = |n: u32| format!("2026-01-01T00:00:04Z stdout F line {n}\n");
        let mut stream = scene
            .logs
            .open(request(|r| (r.follow, r.tail_lines) = (true, Some(1))))
            .await
            .unwrap_or_else(|e| panic!("{e}"));
        let put_aside = |content: String| {
            let fresh = folder.join("log.new");
            fs::write(&fresh, content).unwrap();
            let _absent_at_first = fs::remove_file(folder.join("log.1"));
            fs::hard_link(folder.join("log"), folder.join("log.1")).unwrap();
            fs::rename(fresh, folder.join("log")).unwrap();
        };
        let append = |content: String| {
            let mut file = File::options()
                .append(true)
                .open(folder.join("log"))
                .unwrap();
            file.write_all(content.as_bytes()).unwrap();
        };
        let mut said = String::new();
        let mut hear = async |until: &str| {
            while !said.ends_with(until) {
                let next = tokio::time::timeout(Duration::from_secs(10), stream.next()).await;
                match next.unwrap_or_else(|_| panic!("only {said:?}")) {
                    Some(chunk) => said.push_str(str::from_utf8(&chunk.unwrap()).unwrap()),
                    None => return said.clone(),
                }
            }
            said.clone()
        };
        hear("three\n").await;
        // The reader has not seen the last line of the old file when the new one comes.
        append(line(1));
        put_aside(line(2));
        hear("line 2\n").await;
        // Twice before it looks again: the one in between is read from where it lies now.
        put_aside(line(3));
        put_aside(line(4));
        hear("line 4\n").await;
        append(line(5));
        fs::write(folder.join("exit.json"), "{}").unwrap();
        assert_eq!(
            hear("never").await,
            "three\nline 1\nline 2\nline 3\nline 4\nline 5\n"
        );
    }

    #[test]
    fn the_last_lines_are_found_across_parts_of_a_long_log() {
        let filter = Filter {
            since: None,
            timestamps: false,
        };
        let mut file = tempfile::tempfile().unwrap();
        let mut starts = Vec::new();
        let mut content = Vec::new();
        for n in 0..200 {
            starts.push(content.len() as u64);
            for tag in ["P", "F"] {
                let text = "x".repeat(n * 37 % 5000);
                content.extend(format!("2026-01-01T00:00:01Z stdout {tag} {text}\n").bytes());
            }
            content.extend(b"not a line of a log\n");
        }
        assert!(content.len() > CHUNK * 5);
        file.write_all(&content).unwrap();
        for lines in 1..=200 {
            assert_eq!(tail(&file, filter, lines).unwrap(), starts[200 - lines]);
        }
        assert_eq!(tail(&file, filter, 201).unwrap(), 0);
        assert_eq!(tail(&file, filter, 0).unwrap(), content.len() as u64);
    }

    #[tokio::test]
    async fn a_container_without_a_log_is_said_to_wait() {
        let scene = scene(THREE);
        for odd in ["other", "../../../../etc", ""] {
            let result = scene.logs.open(request(|r| r.container = odd.into())).await;
            let Err(LogError::NotReady(why)) = result else {
                panic!("{odd:?} was found")
            };
            assert!(why.contains("waiting to start"), "{why}");
        }
        drop(scene.root);
    }
}
