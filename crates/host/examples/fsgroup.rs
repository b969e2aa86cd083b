//! What giving a volume to a group costs, beside one hand that goes by paths as the kubelet does.
//!
//! `cargo run --release -p orlop-host --example fsgroup -- FOLDER FILES [PROGRAM]`, as root. Makes a
//! volume of its own below FOLDER (ext4 in an image) with so many files, 100 to a folder. Each way
//! gets a copy of it, freshly mounted, as a volume is when a pod comes: first the files are given to
//! a group, then to another one, with everything in memory. On a FOLDER in memory no disk is
//! measured. PROGRAM is run as `PROGRAM VOLUME GROUP`: `fsgroup.go` beside this file is the
//! kubelet's own way.

use std::error::Error;
use std::fs::File;
use std::io;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _, lchown};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use orlop_host::filesystem::make_image;
use orlop_host::group::{Access, Progress, Wanted, When, apply, usual_threads};
use orlop_host::loopdev::{self, LoopDevice};
use orlop_host::mount::{self, NewMount};
use orlop_host::{FsKind, Place, Restrictions, image};
use rustix::time::ClockId;

/// How often each way is measured; the best time counts, as what others do only adds to it.
const ROUNDS: u32 = 3;

/// Who walks.
enum Way {
    Program(PathBuf),
    Paths,
    Ours { threads: usize },
}

/// What one walk took.
#[derive(Clone, Copy)]
struct Took {
    wall: Duration,
    processor: Duration,
}

fn main() -> Result<(), Box<dyn Error>> {
    let mut args = std::env::args().skip(1);
    let (Some(folder), Some(files)) = (args.next(), args.next()) else {
        return Err("usage: fsgroup FOLDER FILES [PROGRAM]".into());
    };
    let files: u32 = files.parse()?;
    let folder = Path::new(&folder).join(format!("fsgroup-{}", std::process::id()));
    std::fs::create_dir(&folder)?;
    let measured = measure(&folder, files, args.next());
    orlop_host::remove_tree_one_fs(&folder)?;
    measured
}

fn measure(folder: &Path, files: u32, program: Option<String>) -> Result<(), Box<dyn Error>> {
    let first = folder.join("first");
    make(&first, folder, files)?;
    let mut ways = vec![
        ("by paths, one thread", Way::Paths),
        ("ours, one thread", Way::Ours { threads: 1 }),
        ("ours, two threads", Way::Ours { threads: 2 }),
        (
            "ours, as the node does it",
            Way::Ours {
                threads: usual_threads(),
            },
        ),
    ];
    if let Some(program) = program {
        ways.insert(0, ("the program", Way::Program(program.into())));
    }
    println!(
        "{files} files; the node takes {} threads; best of {ROUNDS}: time (processor)",
        usual_threads()
    );
    let mut best: Vec<Option<[Took; 2]>> = ways.iter().map(|_| None).collect();
    for round in 0..ROUNDS {
        for (best, (_, way)) in best.iter_mut().zip(&ways) {
            let copy = folder.join("copy");
            image::copy_sparse(&File::open(&first)?, &File::create_new(&copy)?, None)?;
            let mounted = Mounted::new(&copy, folder)?;
            let took = || -> Result<[Took; 2], Box<dyn Error>> {
                let group = 2000 + round * 10;
                Ok([
                    timed(way, &mounted.path, group)?,
                    timed(way, &mounted.path, group + 1)?,
                ])
            };
            let took = took();
            mounted.end()?;
            std::fs::remove_file(&copy)?;
            let took = took?;
            *best = Some(match *best {
                None => took,
                Some(before) => [0, 1].map(|n| Took {
                    wall: before[n].wall.min(took[n].wall),
                    processor: before[n].processor.min(took[n].processor),
                }),
            });
        }
    }
    println!("{:<28} {:>18} {:>18}", "", "first", "another group");
    let told = |took: Took| {
        let [wall, processor] = [took.wall, took.processor].map(|time| time.as_secs_f64());
        format!("{wall:.3} s ({processor:.3})")
    };
    let slowest = best[0];
    for ((name, _), best) in ways.iter().zip(best) {
        let (Some(took), Some(slowest)) = (best, slowest) else {
            continue;
        };
        let times = |n: usize| slowest[n].wall.as_secs_f64() / took[n].wall.as_secs_f64();
        println!(
            "{name:<28} {:>18} {:>18}   {:.2} x, {:.2} x",
            told(took[0]),
            told(took[1]),
            times(0),
            times(1)
        );
    }
    Ok(())
}

/// Makes the volume that all begin with.
fn make(image: &Path, folder: &Path, files: u32) -> Result<(), Box<dyn Error>> {
    File::create_new(image)?.set_len(u64::from(files) * 2048 + (256 << 20))?;
    let inodes = format!("{}", files + files / 50 + 1000);
    make_image(FsKind::Ext4, image, &["-N".to_owned(), inodes])?;
    let mounted = Mounted::new(image, folder)?;
    let filled = fill(&mounted.path, files);
    mounted.end()?;
    Ok(filled?)
}

fn fill(root: &Path, files: u32) -> io::Result<()> {
    for n in 0..files {
        let folder = root.join((n / 10_000).to_string());
        let folder = folder.join((n / 100 % 100).to_string());
        if n % 100 == 0 {
            std::fs::create_dir_all(&folder)?;
        }
        File::create(folder.join(n.to_string()))?;
    }
    Ok(())
}

/// A volume in its place.
struct Mounted {
    path: PathBuf,
}

impl Mounted {
    fn new(image: &Path, folder: &Path) -> Result<Self, Box<dyn Error>> {
        let path = folder.join("volume");
        std::fs::create_dir_all(&path)?;
        let image = File::options().read(true).write(true).open(image)?;
        image.sync_all()?;
        let (access, lifetime) = (loopdev::Access::ReadWrite, loopdev::Lifetime::LastClose);
        let device = LoopDevice::attach(&image, access, lifetime)?;
        let new = NewMount {
            fs_type: "ext4",
            source: &device.path(),
            restrictions: Restrictions::default(),
            options: &[],
        };
        mount::mount(&new, File::open(&path)?)?;
        Ok(Self { path })
    }

    fn end(self) -> io::Result<()> {
        mount::unmount(&Place::at(&self.path)?)
    }
}

fn timed(way: &Way, root: &Path, group: u32) -> Result<Took, Box<dyn Error>> {
    // Whatever was written before is not this one's to write.
    rustix::fs::sync();
    let (began, used) = (Instant::now(), processor()?);
    match way {
        Way::Program(program) => {
            let status = Command::new(program)
                .arg(root)
                .arg(group.to_string())
                .status()?;
            if !status.success() {
                return Err("the program failed".into());
            }
        }
        Way::Paths => {
            by_paths(root, group)?;
        }
        Way::Ours { threads } => {
            let wanted = Wanted {
                group,
                access: Access::ReadWrite,
            };
            apply(root, (wanted, When::Always), *threads, &Progress::default())?;
        }
    }
    Ok(Took {
        wall: began.elapsed(),
        processor: processor()? - used,
    })
}

/// What this process and the programs that it ran have used of all cores.
fn processor() -> Result<Duration, Box<dyn Error>> {
    let own = Duration::try_from(rustix::time::clock_gettime(ClockId::ProcessCPUTime))?;
    // Of children the kernel tells in ticks, after the command's name, which holds no space here.
    let stat = std::fs::read_to_string("/proc/self/stat")?;
    let fields = stat.split(' ').skip(15).take(2);
    let ticks = fields.map(str::parse::<u64>).sum::<Result<u64, _>>()?;
    // A tick is a hundredth of a second to whoever reads this file.
    Ok(own + Duration::from_millis(ticks * 10))
}

/// As the kubelet does it: a folder's entries first, unsorted, each by its whole path: lstat, lchown,
/// chmod.
fn by_paths(path: &Path, group: u32) -> io::Result<()> {
    let found = std::fs::symlink_metadata(path)?;
    if found.is_dir() {
        let names: io::Result<Vec<_>> = std::fs::read_dir(path)?
            .map(|entry| entry.map(|entry| entry.file_name()))
            .collect();
        for name in names? {
            by_paths(&path.join(name), group)?;
        }
    }
    lchown(path, None, Some(group))?;
    if !found.is_symlink() {
        let mask = if found.is_dir() { 0o2770 } else { 0o660 };
        std::fs::set_permissions(path, std::fs::Permissions::from_mode(found.mode() | mask))?;
    }
    Ok(())
}
