//! Resources of kernels, from the compiler's log.

/// Resources of a kernel.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Resources {
    /// Its name.
    pub kernel: String,
    /// Registers of a thread.
    pub registers: u32,
    /// Bytes that a thread stores because of spilled registers.
    pub spill_stores: u32,
    /// Bytes that a thread loads because of spilled registers.
    pub spill_loads: u32,
    /// Bytes of a thread's stack.
    pub stack: u32,
    /// Bytes of static shared memory.
    pub shared: u32,
}

impl Resources {
    /// The resources of all kernels, from a log of `--ptxas-options=-v`.
    pub fn parse(log: &str) -> Vec<Resources> {
        let mut all: Vec<Resources> = Vec::new();
        let mut of_kernel = false;
        for line in log.lines() {
            if let Some(kernel) = between(line, "Compiling entry function '", "'") {
                let kernel = kernel.to_string();
                all.push(Resources {
                    kernel,
                    ..Resources::default()
                });
            }
            let Some(last) = all.last_mut() else { continue };
            // Functions that are not inlined are listed too, before or after their kernel.
            if let Some((_, function)) = line.split_once("Function properties for ") {
                of_kernel = function.trim() == last.kernel;
            }
            if of_kernel {
                last.read_line(line);
            }
        }
        all
    }

    fn read_line(&mut self, line: &str) {
        for part in line.split([',', ':']) {
            let words: Vec<&str> = part.split_whitespace().collect();
            match words.as_slice() {
                ["Used", count, "registers"] => self.registers = number(count),
                [bytes, "bytes", "stack", "frame"] => self.stack = number(bytes),
                [bytes, "bytes", "spill", "stores"] => self.spill_stores = number(bytes),
                [bytes, "bytes", "spill", "loads"] => self.spill_loads = number(bytes),
                [bytes, "bytes", "smem"] => self.shared = number(bytes),
                _ => (),
            }
        }
    }
}

fn number(text: &str) -> u32 {
    text.parse().unwrap_or(0)
}

fn between<'a>(text: &'a str, before: &str, after: &str) -> Option<&'a str> {
    let (_, rest) = text.split_once(before)?;
    Some(rest.split_once(after)?.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    const LOG: &str = "\
ptxas info    : 0 bytes gmem
ptxas info    : Compiling entry function 'first' for 'sm_90'
ptxas info    : Function properties for first
    16 bytes stack frame, 8 bytes spill stores, 12 bytes spill loads
ptxas info    : Used 255 registers, used 1 barriers, 16 bytes cumulative stack size, 1032 bytes smem
ptxas info    : Compile time = 1.5 ms
ptxas info    : Function properties for _Z6calledv
    99 bytes stack frame, 99 bytes spill stores, 99 bytes spill loads
ptxas info    : Compiling entry function 'second' for 'sm_90'
ptxas info    : Function properties for second
    0 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads
ptxas info    : Used 8 registers, used 0 barriers, 376 bytes cmem[0]";

    #[test]
    fn resources_are_read_from_the_log() {
        let first = Resources {
            kernel: "first".to_string(),
            registers: 255,
            spill_stores: 8,
            spill_loads: 12,
            stack: 16,
            shared: 1032,
        };
        let second = Resources {
            kernel: "second".to_string(),
            registers: 8,
            ..Resources::default()
        };
        assert_eq!(Resources::parse(LOG), [first, second]);
        assert_eq!(Resources::parse(""), []);
    }
}
