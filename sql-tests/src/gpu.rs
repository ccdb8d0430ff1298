//! Runs tests on a GPU, and counts what it did.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use datafusion::common::{Result, exec_err};
use datafusion::physical_plan::ExecutionPlan;
use datafusion::prelude::SessionContext;
use vectile_datafusion::{Gpu, GpuMode, VectileOptions, register_with_gpu};
use vectile_emulator::CpuDevice;
use vectile_gpu::{Engine, Tier};

/// The environment variable that makes all tests over Vectile files use the machine's GPU; or, if it is `cpu`, an
/// emulated one; or, if it is `interpreted`, an emulated one that runs the interpreter.
pub const GPU_VARIABLE: &str = "VECTILE_TEST_GPU";

/// The prefix of reasons for a kernel that does not support the content of a file. Only for such reasons may a fused
/// operator be left to the CPU.
const UNSUPPORTED: &str = "not fused: ";
/// Reasons end in this if only the interpreter cannot run a kernel plan.
const IN_THE_INTERPRETER: &str = " in the interpreter";

/// The GPU of a test run, and its counters.
#[derive(Clone, Debug)]
pub struct GpuRun {
    gpu: Gpu,
    tally: Arc<Mutex<Tally>>,
}

/// The result of a query on the GPU.
#[derive(Clone, Debug)]
pub struct OnGpu {
    /// True if a part of the query was fused, and no fused part was left to the CPU.
    pub stayed: bool,
    /// Failures of the GPU.
    pub failures: Vec<String>,
}

#[derive(Debug, Default)]
struct Tally {
    queries: usize,
    fused: usize,
    fell_back: usize,
    /// Key tables that the device has built.
    built: usize,
    /// The number of times each reason was given for leaving an operator to the CPU.
    reasons: BTreeMap<String, usize>,
}

impl GpuRun {
    /// Uses this device.
    pub fn new(gpu: Gpu) -> Self {
        let tally = Arc::default();
        Self { gpu, tally }
    }

    /// Uses the device that [`GPU_VARIABLE`] names.
    ///
    /// # Errors
    ///
    /// As [`GpuRun::on_cpu`].
    pub fn from_env() -> Result<Option<Self>> {
        match std::env::var(GPU_VARIABLE).as_deref() {
            Err(_) | Ok("") => Ok(None),
            Ok(name @ ("cpu" | "interpreted")) => {
                let run = match name {
                    "cpu" => Self::on_cpu(),
                    _ => Self::interpreted(),
                };
                match run {
                    Ok(run) => Ok(Some(run)),
                    Err(error) => exec_err!("{GPU_VARIABLE}: {error}"),
                }
            }
            Ok(_) => Ok(Some(Self::new(Gpu::of_machine()))),
        }
    }

    /// Uses an emulated GPU, with generated kernels.
    ///
    /// # Errors
    ///
    /// If there is no C++ compiler.
    pub fn on_cpu() -> vectile_gpu::Result<Self> {
        Self::emulated(CpuDevice::new()?.without_optimization(), Tier::Generated)
    }

    /// Uses an emulated GPU, with the interpreter alone.
    ///
    /// # Errors
    ///
    /// If there is no C++ compiler.
    pub fn interpreted() -> vectile_gpu::Result<Self> {
        Self::emulated(CpuDevice::new()?, Tier::Interpreted)
    }

    fn emulated(device: CpuDevice, tier: Tier) -> vectile_gpu::Result<Self> {
        let engine = Engine::new(Arc::new(device));
        engine.set_tier(tier);
        Ok(Self::new(Gpu::new(engine)))
    }

    /// Registers Vectile in a session, whose queries use the GPU if they can.
    pub fn register(&self, ctx: &SessionContext) -> Result<()> {
        register_with_gpu(ctx, self.gpu.clone())?;
        let state = ctx.state_ref();
        let mut state = state.write();
        let extensions = &mut state.config_mut().options_mut().extensions;
        if let Some(options) = extensions.get_mut::<VectileOptions>() {
            options.gpu = GpuMode::On;
            // test tables are small
            options.gpu_tuning.build_from_rows = 0;
        }
        Ok(())
    }

    /// Counts a query that was executed.
    pub fn count(&self, plan: &dyn ExecutionPlan) -> OnGpu {
        let mut summary = PlanSummary::default();
        summary.add_plan(plan);
        let mut tally = self.tally();
        let failures = summary.reasons.iter().filter(|reason| is_failure(reason));
        let on_gpu = OnGpu {
            stayed: summary.fused && summary.reasons.is_empty(),
            failures: failures.map(|reason| failure(reason)).collect(),
        };
        tally.queries += 1;
        tally.fused += usize::from(summary.fused);
        tally.built += summary.built;
        for reason in summary.built_on_cpu {
            *tally.reasons.entry(reason).or_default() += 1;
        }
        tally.fell_back += usize::from(!summary.reasons.is_empty());
        for reason in summary.reasons {
            *tally.reasons.entry(reason).or_default() += 1;
        }
        on_gpu
    }

    /// How often an operator, or the key tables of a join, were left to the CPU although a generated kernel could do it.
    pub fn refused_by_the_interpreter(&self) -> usize {
        let tally = self.tally();
        let refused = tally.reasons.iter();
        let refused = refused.filter(|(reason, _)| reason.contains(IN_THE_INTERPRETER));
        refused.map(|(_, times)| times).sum()
    }

    /// The failures: nothing was fused, or the GPU failed.
    pub fn failures(&self) -> Vec<String> {
        let tally = self.tally();
        let failed = tally.reasons.keys().filter(|reason| is_failure(reason));
        let mut failures: Vec<String> = failed.map(|reason| failure(reason)).collect();
        if tally.fused == 0 {
            failures.push("nothing was fused".into());
        }
        failures
    }

    fn tally(&self) -> MutexGuard<'_, Tally> {
        self.tally.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl fmt::Display for GpuRun {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let tally = self.tally();
        let Tally {
            queries,
            fused,
            fell_back,
            built,
            reasons,
        } = &*tally;
        write!(
            f,
            "GPU: {fused} of {queries} queries were fused, {fell_back} fell back; {built} lookups were made there"
        )?;
        reasons
            .iter()
            .try_for_each(|(reason, times)| write!(f, "\n  {times} x {reason}"))
    }
}

fn is_failure(reason: &str) -> bool {
    !reason.contains(UNSUPPORTED)
}

fn failure(reason: &str) -> String {
    format!("the GPU failed: {reason}")
}

/// The sum of a plan's metrics.
#[derive(Default)]
struct PlanSummary {
    fused: bool,
    reasons: Vec<String>,
    built: usize,
    built_on_cpu: Vec<String>,
}

impl PlanSummary {
    fn add_plan(&mut self, plan: &dyn ExecutionPlan) {
        for metric in plan.metrics().iter().flat_map(|metrics| metrics.iter()) {
            match metric.value().name() {
                "gpu_rows" => self.fused = true,
                "fallbacks" => {
                    let labels = metric.labels().iter();
                    self.reasons
                        .extend(labels.map(|label| label.value().to_owned()));
                }
                "lookups_built_on_gpu" => self.built += metric.value().as_usize(),
                name if name.starts_with("builds_on_cpu") => self.built_on_cpu.push(name.into()),
                _ => {}
            }
        }
        for child in plan.children() {
            self.add_plan(child.as_ref());
        }
    }
}

/// Registers the format in a session.
pub fn register_vectile(ctx: &SessionContext, gpu: Option<&GpuRun>) -> Result<()> {
    match gpu {
        Some(gpu) => gpu.register(ctx),
        None => vectile_datafusion::register(ctx),
    }
}
