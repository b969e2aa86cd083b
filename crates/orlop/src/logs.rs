//! Containers' logs for `kubectl logs`, read from the nodes' folders.

use std::{
    collections::{BTreeMap, VecDeque},
    fs::File,
    io::{self, Read, Seek, SeekFrom},
    path::{Path, PathBuf},
};

use bytes::Bytes;
use futures::{FutureExt, StreamExt, future::BoxFuture, stream};
use jiff::Timestamp;
use orlop_apiserver::{LogError, LogRequest, LogSource, LogStream};
use orlop_host::{folder_watch::FolderWatch, sandbox::log::Line};
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
            let reader = Reader::open(&path, &request).map_err(LogError::Read)?;
            Ok(reader.stream(request.limit_bytes))
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
    /// A line as kubectl prints it.
    fn show(self, raw: &[u8]) -> Option<Vec<u8>> {
        let line = Line::parse(raw)?;
        if self.since.is_some_and(|since| line.at < since) {
            return None;
        }
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
            let start = tail(
                &mut file,
                filter,
                usize::try_from(lines).unwrap_or(usize::MAX),
            )?;
            file.seek(SeekFrom::Start(start))?;
        }
        Ok(Self {
            file,
            growth,
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
            match &mut self.growth {
                Some(growth) if !ended => {
                    growth.next().await?;
                }
                _ => return Ok(None),
            }
        }
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

/// Where the last so many lines begin.
fn tail(file: &mut File, filter: Filter, lines: usize) -> io::Result<u64> {
    let mut content = Vec::new();
    file.read_to_end(&mut content)?;
    let mut starts = VecDeque::new();
    let mut at = 0;
    let mut begins = true;
    for raw in content.split_inclusive(|b| *b == b'\n') {
        let line = raw.strip_suffix(b"\n").unwrap_or(raw);
        if filter.show(line).is_some() {
            // A line in pieces counts once, from its first piece.
            if begins {
                starts.push_back(at);
                if starts.len() > lines {
                    starts.pop_front();
                }
            }
            begins = Line::parse(line).is_none_or(|l| l.ends);
        }
        at += raw.len();
    }
    let end = content.len();
    Ok(u64::try_from(starts.front().copied().unwrap_or(end)).unwrap_or(u64::MAX))
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
