//! Compiles every kernel of the catalogue for all supported architectures: none may spill or use a stack, and its
//! registers are compared with `tests/resources.txt`.
//!
//! A kernel's name is its case, query and a number; duplicates of earlier kernels are skipped. Compiling all of them
//! takes most of an hour on two cores. A kernel whose checksum (of compiler and source) is in the table is not
//! compiled. If a line changes that every kernel has, no checksum matches: then only [`SAMPLE`] kernels are compiled,
//! or all with `ALL_KERNELS=1`. Kernels of [`QUICK`] are always compiled. `UPDATE_RESOURCES=1` rewrites the table.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use vectile_emulator::{CpuDevice, Recorder};
use vectile_encodings::streams::RunLength;
use vectile_gpu::{Batch, Driver, Engine, Resources, compile_cubin, nvrtc};
use vectile_kernels::{
    BUILD, COLUMNS, COMPRESS, DECODE, DECODE_PAGES, DISTINCT, INFLATE, INFLATE_SNAPPY, TOKENIZER,
    decode_runs,
};
use vectile_pipeline::Output;

use crate::catalog::{Case, Query, catalog};
use crate::support;

const ARCHITECTURES: [(u32, u32); 4] = [(8, 0), (9, 0), (10, 0), (12, 0)];
/// Cases, by the start of their names, whose kernels compile in seconds.
const QUICK: [&str; 6] = ["casts", "dates", "decimals", "floats", "logic", "times"];
/// The version of the compiler that the table was written with.
const TABLE_VERSION: (u32, u32) = (13, 0);
/// Number of changed kernels that are compiled without `ALL_KERNELS`: two minutes on two cores.
const SAMPLE: usize = 24;
const TABLE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/resources.txt");
/// Registers above the table's that are not yet a regression: compilers differ.
const SLACK: u32 = 8;

/// Names and sources of the distinct kernels of some cases; `None` without a device, which row groups are loaded to.
fn kernels(filter: impl Fn(&Case) -> bool) -> Option<Vec<(String, String)>> {
    let recorder = match CpuDevice::new() {
        Ok(device) => Arc::new(Recorder::new(device)),
        Err(error) => {
            eprintln!("skipped: {error}");
            return None;
        }
    };
    let engine = Engine::new(Arc::clone(&recorder) as Arc<dyn Driver>);
    let (mut known, mut named) = (BTreeSet::new(), vec![]);
    for case in catalog().iter().filter(|case| filter(case)) {
        let mut counts: BTreeMap<&str, usize> = BTreeMap::new();
        let groups: Vec<_> = case
            .groups
            .iter()
            .map(|g| support::group(&engine, g))
            .collect();
        for query in &case.queries {
            generate(&engine, case, query, &groups);
            for source in recorder.take() {
                let count = counts.entry(query.name).or_default();
                if known.insert(source.clone()) {
                    *count += 1;
                    named.push((format!("{}/{}/{count}", case.name, query.name), source));
                }
            }
        }
    }
    Some(named)
}

/// Generates a query's kernels. The driver under test cannot launch any, so the execution must fail.
fn generate(engine: &Arc<Engine>, case: &Case, query: &Query, groups: &[vectile_gpu::Group]) {
    let mut execution = engine.start(case.pipeline(query));
    let result = match query.output {
        Output::Selection => execution.select(groups).map(|_| ()),
        Output::Rows(_) => execution.rows(groups).map(|_| ()),
        Output::Aggregates(_) => execution.aggregate(&Batch::of(groups).unwrap()),
        Output::Groups(..) => execution
            .group(&Batch::of(groups).unwrap(), |_| Ok(()))
            .map(|_| ()),
    };
    assert!(
        result.is_err(),
        "{}: a kernel that is none was launched",
        case.name
    );
}

/// Calls `work` for every number below `count`, on all cores.
fn in_parallel(count: usize, work: impl Fn(usize) + Sync) {
    let next = AtomicUsize::new(0);
    std::thread::scope(|scope| {
        for _ in 0..std::thread::available_parallelism().map_or(1, usize::from) {
            scope.spawn(|| {
                loop {
                    let index = next.fetch_add(1, Ordering::Relaxed);
                    if index >= count {
                        break;
                    }
                    work(index);
                }
            });
        }
    });
}

/// A kernel's entry in the table.
#[derive(Clone, Debug, PartialEq)]
struct KernelResources {
    /// Checksum of compiler and source.
    checksum: u32,
    /// Registers per thread, per architecture.
    registers: Vec<u32>,
}

/// The resources of kernels, by name.
type ResourceTable = BTreeMap<String, KernelResources>;

fn parse(text: &str) -> ResourceTable {
    let lines = text.lines().filter(|line| !line.starts_with('#'));
    let known = lines.filter_map(|line| {
        let (checksum, rest) = line.split_at_checked(8)?;
        let (numbers, name) = rest.split_at_checked(5 * ARCHITECTURES.len())?;
        let registers = numbers.split_whitespace().map(|number| number.parse().ok());
        let known = KernelResources {
            checksum: u32::from_str_radix(checksum, 16).ok()?,
            registers: registers.collect::<Option<_>>()?,
        };
        Some((name.trim().to_string(), known))
    });
    known.collect()
}

fn print(table: &ResourceTable) -> String {
    let mut text = String::from(
        "# Registers of a thread of each kernel that the catalogue's queries need, for sm_80, sm_90,\n\
         # sm_100 and sm_120, behind a checksum of compiler and source. No kernel spills or has a\n\
         # stack. Written by tests/it/compile.rs.\n",
    );
    for (
        name,
        KernelResources {
            checksum,
            registers,
        },
    ) in table
    {
        let registers: Vec<String> = registers.iter().map(|count| format!("{count:5}")).collect();
        let _ = writeln!(text, "{checksum:08x}{} {name}", registers.concat());
    }
    text
}

/// A kernel's resources on an architecture; an error if it spills registers or uses a stack.
fn resources(source: &str, architecture: (u32, u32)) -> Result<Resources, String> {
    let cubin = compile_cubin(source, architecture).map_err(|error| error.to_string())?;
    let used = cubin.resources.first().cloned();
    let used = used.ok_or("no kernel in it".to_string())?;
    match used.stack + used.spill_loads + used.spill_stores {
        0 => Ok(used),
        _ => Err(format!("{used:?}")),
    }
}

#[test]
fn kernels_compile_without_spills() {
    if let Err(error) = nvrtc() {
        return eprintln!("skipped: {error}");
    }
    let quick = |case: &Case| QUICK.iter().any(|start| case.name.starts_with(start));
    let Some(kernels) = kernels(quick) else {
        return;
    };
    assert!(kernels.len() > 10, "{}", kernels.len());
    let wrong: Mutex<Vec<String>> = Mutex::default();
    in_parallel(kernels.len() * ARCHITECTURES.len(), |job| {
        let (name, source) = &kernels[job / ARCHITECTURES.len()];
        let architecture = ARCHITECTURES[job % ARCHITECTURES.len()];
        if let Err(reason) = resources(source, architecture) {
            wrong
                .lock()
                .unwrap()
                .push(format!("{name} on {architecture:?}: {reason}"));
        }
    });
    let wrong = wrong.into_inner().unwrap();
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn fixed_kernels_compile_without_spills() {
    if let Err(error) = nvrtc() {
        return eprintln!("skipped: {error}");
    }
    let fixed = [
        ("build", BUILD.concat()),
        ("columns", COLUMNS.concat()),
        ("compress", COMPRESS.concat()),
        ("decode", DECODE.concat()),
        ("decode_pages", DECODE_PAGES.concat()),
        ("distinct", DISTINCT.concat()),
        ("inflate", INFLATE.concat()),
        ("inflate_snappy", INFLATE_SNAPPY.concat()),
        ("tokenize", TOKENIZER.concat()),
    ];
    let mut kernels = fixed
        .map(|(name, source)| (name.to_string(), source))
        .to_vec();
    let [signed, unsigned] = [true, false];
    for (of, value) in [
        (RunLength::Bytes, "u8"),
        (RunLength::V1 { is_signed: signed }, "i32"),
        (RunLength::V1 { is_signed: signed }, "i64"),
        (RunLength::V2 { is_signed: signed }, "i16"),
        (RunLength::V2 { is_signed: signed }, "i64"),
        (
            RunLength::V2 {
                is_signed: unsigned,
            },
            "u32",
        ),
    ] {
        kernels.push((format!("{of:?} of {value}"), decode_runs(of, value)));
    }
    let wrong: Mutex<Vec<String>> = Mutex::default();
    in_parallel(kernels.len() * ARCHITECTURES.len(), |job| {
        let (name, source) = &kernels[job / ARCHITECTURES.len()];
        let architecture = ARCHITECTURES[job % ARCHITECTURES.len()];
        if let Err(reason) = resources(source, architecture) {
            let mut wrong = wrong.lock().unwrap();
            wrong.push(format!("{name} on {architecture:?}: {reason}"));
        }
    });
    let wrong = wrong.into_inner().unwrap();
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// Returns true if a case's kernels are in the table. Lookups and groups have kernels for every way to store keys, most
/// of which hardly differ: some suffice.
fn is_in_table(case: &Case) -> bool {
    let stars = [
        "stars ffor",
        "stars dict",
        "stars rle",
        "stars mixed",
        "stars hashed ffor",
        "stars hashed ffor wide",
        "stars hashed rle",
        "stars hashed mixed",
    ];
    !case.name.starts_with("stars") || stars.contains(&case.name.as_str())
}

#[test]
fn every_kernel_compiles_without_spills() {
    let version = match nvrtc() {
        Ok(nvrtc) => nvrtc.version(),
        Err(error) => return eprintln!("skipped: {error}"),
    };
    let is_set = |name| std::env::var(name).is_ok_and(|value| value == "1");
    let (all, update) = (is_set("ALL_KERNELS"), is_set("UPDATE_RESOURCES"));
    if version != TABLE_VERSION && !all && !update {
        return eprintln!("skipped: NVRTC {version:?}, and the table is of {TABLE_VERSION:?}");
    }
    let Some(kernels) = kernels(is_in_table) else {
        return;
    };
    let committed = parse(&std::fs::read_to_string(TABLE).unwrap_or_default());
    let checksum = |source: &str| crc32fast::hash(format!("{version:?} {source}").as_bytes());
    let (mut table, mut unknown) = (ResourceTable::new(), vec![]);
    for (name, source) in &kernels {
        let same = committed
            .values()
            .find(|known| known.checksum == checksum(source));
        match same.filter(|_| !all) {
            Some(known) => drop(table.insert(name.clone(), known.clone())),
            None => unknown.push((name, source)),
        }
    }
    if !all && !update {
        let (sample, rest) = sample(unknown, SAMPLE);
        for (name, source) in &rest {
            let known = committed.get(*name).cloned();
            let unnamed = || KernelResources {
                checksum: checksum(source),
                registers: vec![],
            };
            table.insert((*name).clone(), known.unwrap_or_else(unnamed));
        }
        if !rest.is_empty() {
            let (count, skipped) = (sample.len() + rest.len(), rest.len());
            eprintln!("skipped: {skipped} of {count} kernels that have changed; ALL_KERNELS=1");
        }
        unknown = sample;
    }
    let results: Mutex<BTreeMap<(usize, usize), Result<Resources, String>>> = Mutex::default();
    in_parallel(unknown.len() * ARCHITECTURES.len(), |job| {
        let (kernel, architecture) = (job / ARCHITECTURES.len(), job % ARCHITECTURES.len());
        let result = resources(unknown[kernel].1, ARCHITECTURES[architecture]);
        results
            .lock()
            .unwrap()
            .insert((kernel, architecture), result);
    });
    let mut results = results.into_inner().unwrap();
    let mut wrong = vec![];
    for (kernel, (name, source)) in unknown.iter().enumerate() {
        let mut registers = vec![];
        for (architecture, (major, minor)) in ARCHITECTURES.into_iter().enumerate() {
            match results.remove(&(kernel, architecture)).unwrap() {
                Ok(used) => registers.push(used.registers),
                Err(reason) => wrong.push(format!("{name} on sm_{major}{minor}: {reason}")),
            }
        }
        if registers.len() == ARCHITECTURES.len() {
            let checksum = checksum(source);
            table.insert(
                (*name).clone(),
                KernelResources {
                    checksum,
                    registers,
                },
            );
        }
    }
    match update {
        true => std::fs::write(TABLE, print(&table)).unwrap(),
        false => wrong.extend(compare(&committed, &table)),
    }
    assert!(
        wrong.is_empty(),
        "UPDATE_RESOURCES=1 if that is meant:\n{}",
        wrong.join("\n")
    );
}

/// Splits items into at most `count` evenly spread ones and the rest.
fn sample<T>(items: Vec<T>, count: usize) -> (Vec<T>, Vec<T>) {
    let all = items.len().max(1);
    let indexed = items.into_iter().enumerate();
    let (sample, rest): (Vec<_>, Vec<_>) =
        indexed.partition(|(index, _)| index * count / all != (index + 1) * count / all);
    let items = |some: Vec<(usize, T)>| some.into_iter().map(|(_, item)| item).collect();
    (items(sample), items(rest))
}

#[test]
fn samples_are_spread() {
    let (some, rest) = sample((0..100).collect(), 4);
    assert_eq!(some, [24, 49, 74, 99]);
    assert_eq!(rest.len(), 96);
    assert_eq!(sample((0..3).collect(), 4), (vec![0, 1, 2], vec![]));
}

/// Reports kernels that are worse than in the committed table, or not in it.
fn compare(committed: &ResourceTable, current: &ResourceTable) -> Vec<String> {
    let mut wrong = vec![];
    for (name, KernelResources { registers, .. }) in current {
        match committed.get(name) {
            None => wrong.push(format!("{name} is not in the table")),
            Some(KernelResources {
                registers: known, ..
            }) => {
                let more = registers
                    .iter()
                    .zip(known)
                    .any(|(now, before)| *now > before + SLACK);
                if more || known.len() != registers.len() {
                    wrong.push(format!("{name}: {registers:?} registers, before {known:?}"));
                }
            }
        }
    }
    let gone = committed.keys().filter(|name| !current.contains_key(*name));
    wrong.extend(gone.map(|name| format!("{name} is in the table, but no kernel any more")));
    wrong
}

#[test]
fn a_table_is_read_as_it_was_written() {
    let table = |last| {
        let registers = vec![32, 40, 48, last];
        ResourceTable::from([(
            "a/b c/1".to_string(),
            KernelResources {
                checksum: 0xAB,
                registers,
            },
        )])
    };
    assert_eq!(parse(&print(&table(100))), table(100));
    assert_eq!(
        compare(&table(100), &table(100 + SLACK)),
        Vec::<String>::new()
    );
    assert_eq!(compare(&table(100), &table(101 + SLACK)).len(), 1);
    assert_eq!(compare(&table(100), &ResourceTable::new()).len(), 1);
    assert_eq!(compare(&ResourceTable::new(), &table(100)).len(), 1);
}
