//! The compiler's functions.

use std::ffi::{CStr, CString, c_char, c_int, c_void};
use std::ptr;

use libloading::Library;

use crate::error::{Error, Result};

/// A program of the compiler.
type Program = *mut c_void;

/// The compiler's functions, as `nvrtc.h` declares them; a result is an `int`.
pub(super) struct Calls {
    pub version: unsafe extern "C" fn(*mut c_int, *mut c_int) -> c_int,
    architecture_count: unsafe extern "C" fn(*mut c_int) -> c_int,
    architectures: unsafe extern "C" fn(*mut c_int) -> c_int,
    error_string: unsafe extern "C" fn(c_int) -> *const c_char,
    create: unsafe extern "C" fn(
        *mut Program,
        *const c_char,
        *const c_char,
        c_int,
        *const *const c_char,
        *const *const c_char,
    ) -> c_int,
    destroy: unsafe extern "C" fn(*mut Program) -> c_int,
    compile: unsafe extern "C" fn(Program, c_int, *const *const c_char) -> c_int,
    log_size: unsafe extern "C" fn(Program, *mut usize) -> c_int,
    log: unsafe extern "C" fn(Program, *mut c_char) -> c_int,
    cubin_size: unsafe extern "C" fn(Program, *mut usize) -> c_int,
    cubin: unsafe extern "C" fn(Program, *mut c_char) -> c_int,
    ptx_size: unsafe extern "C" fn(Program, *mut usize) -> c_int,
    ptx: unsafe extern "C" fn(Program, *mut c_char) -> c_int,
}

impl Calls {
    pub fn of(library: &Library) -> Result<Calls, libloading::Error> {
        /// # Safety
        ///
        /// The type is that of the function.
        unsafe fn get<T: Copy>(library: &Library, name: &str) -> Result<T, libloading::Error> {
            // SAFETY: the caller vouches for the type.
            unsafe { library.get::<T>(name) }.map(|symbol| *symbol)
        }
        // SAFETY: the types are those of nvrtc.h, the same in versions 12 and 13.
        unsafe {
            Ok(Calls {
                version: get(library, "nvrtcVersion")?,
                architecture_count: get(library, "nvrtcGetNumSupportedArchs")?,
                architectures: get(library, "nvrtcGetSupportedArchs")?,
                error_string: get(library, "nvrtcGetErrorString")?,
                create: get(library, "nvrtcCreateProgram")?,
                destroy: get(library, "nvrtcDestroyProgram")?,
                compile: get(library, "nvrtcCompileProgram")?,
                log_size: get(library, "nvrtcGetProgramLogSize")?,
                log: get(library, "nvrtcGetProgramLog")?,
                cubin_size: get(library, "nvrtcGetCUBINSize")?,
                cubin: get(library, "nvrtcGetCUBIN")?,
                ptx_size: get(library, "nvrtcGetPTXSize")?,
                ptx: get(library, "nvrtcGetPTX")?,
            })
        }
    }
}

pub(super) const SUCCESS: c_int = 0;
pub(super) const OUT_OF_MEMORY: c_int = 1;
pub(super) const COMPILATION_FAILED: c_int = 6;

impl Calls {
    pub fn check(&self, call: &'static str, result: c_int) -> Result<()> {
        match result {
            SUCCESS => Ok(()),
            result => Err(Error::Driver {
                call,
                reason: self.describe(result),
            }),
        }
    }

    pub fn describe(&self, result: c_int) -> String {
        // SAFETY: takes any number.
        let text = unsafe { (self.error_string)(result) };
        if text.is_null() {
            return format!("NVRTC error {result}");
        }
        // SAFETY: it is a text of the library's, which stays loaded.
        let text = unsafe { CStr::from_ptr(text) };
        text.to_string_lossy().into_owned()
    }

    /// Creates a program of that source.
    pub fn program<'a>(&'a self, source: &'a CStr) -> Result<ProgramGuard<'a>> {
        let mut program = ptr::null_mut();
        // SAFETY: source and name end in a zero, and the source lives as long as the program;
        // there are no headers.
        let result = unsafe {
            (self.create)(
                &mut program,
                source.as_ptr(),
                c"kernel.cu".as_ptr(),
                0,
                ptr::null(),
                ptr::null(),
            )
        };
        self.check("nvrtcCreateProgram", result)?;
        Ok(ProgramGuard {
            calls: self,
            program,
            _source: source,
        })
    }

    pub fn read_version(&self) -> Result<(u32, u32), String> {
        let (mut major, mut minor) = (0, 0);
        // SAFETY: the pointers are to live integers.
        let result = unsafe { (self.version)(&mut major, &mut minor) };
        match (result, u32::try_from(major), u32::try_from(minor)) {
            (SUCCESS, Ok(major), Ok(minor)) => Ok((major, minor)),
            _ => Err(format!("nvrtcVersion failed: {}", self.describe(result))),
        }
    }

    pub fn read_architectures(&self) -> Result<Vec<(u32, u32)>, String> {
        let mut count = 0;
        // SAFETY: the pointer is to a live integer.
        let result = unsafe { (self.architecture_count)(&mut count) };
        let mut numbers: Vec<c_int> = vec![0; usize::try_from(count).unwrap_or(0)];
        let result = match result {
            // SAFETY: as many numbers are written as there is room for.
            SUCCESS => unsafe { (self.architectures)(numbers.as_mut_ptr()) },
            result => result,
        };
        if result != SUCCESS {
            let reason = self.describe(result);
            return Err(format!("nvrtcGetSupportedArchs failed: {reason}"));
        }
        let numbers = numbers
            .iter()
            .filter_map(|number| u32::try_from(*number).ok());
        Ok(numbers.map(|number| (number / 10, number % 10)).collect())
    }
}

/// A program, destroyed on drop.
pub(super) struct ProgramGuard<'a> {
    calls: &'a Calls,
    program: Program,
    /// The program may refer to it.
    _source: &'a CStr,
}

impl ProgramGuard<'_> {
    pub fn compile(&self, options: &[CString]) -> c_int {
        let pointers: Vec<*const c_char> = options.iter().map(|it| it.as_ptr()).collect();
        // SAFETY: the program is alive; there are as many options as said, each ending in a zero.
        unsafe { (self.calls.compile)(self.program, pointers.len() as c_int, pointers.as_ptr()) }
    }

    pub fn log(&self) -> Result<String> {
        let bytes = self.read("nvrtcGetProgramLog", self.calls.log_size, self.calls.log)?;
        let text = String::from_utf8_lossy(&bytes);
        Ok(text.trim_end_matches('\0').trim_end().to_string())
    }

    pub fn cubin(&self) -> Result<Vec<u8>> {
        self.read("nvrtcGetCUBIN", self.calls.cubin_size, self.calls.cubin)
    }

    /// A text, with the zero at its end.
    pub fn ptx(&self) -> Result<Vec<u8>> {
        self.read("nvrtcGetPTX", self.calls.ptx_size, self.calls.ptx)
    }

    /// The output of `content`, whose size is that of `size`.
    fn read(
        &self,
        call: &'static str,
        size: unsafe extern "C" fn(Program, *mut usize) -> c_int,
        content: unsafe extern "C" fn(Program, *mut c_char) -> c_int,
    ) -> Result<Vec<u8>> {
        let mut bytes = 0;
        // SAFETY: the program is alive; the pointer is to a live integer.
        let result = unsafe { size(self.program, &mut bytes) };
        self.calls.check(call, result)?;
        let mut read = vec![0_u8; bytes];
        if bytes > 0 {
            // SAFETY: the program is alive; as many bytes are written as there are.
            let result = unsafe { content(self.program, read.as_mut_ptr().cast()) };
            self.calls.check(call, result)?;
        }
        Ok(read)
    }
}

impl Drop for ProgramGuard<'_> {
    fn drop(&mut self) {
        // SAFETY: created once, in `Calls::program`.
        let _ = unsafe { (self.calls.destroy)(&mut self.program) };
    }
}
