//! Kernels of shared libraries, behind the C interface of `include/tenure_kernel.h`.
//!
//! This is a place with `unsafe` code, since a library is machine code that nobody can look into:
//! that it keeps to the header is the word of its maker. What it gives is looked at as far as that
//! goes: pointers that must not be null, texts that must end, the version of the interface. A run in
//! guard zones ([`crate::sanitize`]) sees a kernel that writes beyond its outputs.

use std::ffi::{CStr, CString, c_char, c_void};
use std::fmt;
use std::path::Path;
use std::ptr;
use std::sync::Arc;

use libloading::Library;
use tenure_graph::{Attr, DType};

use super::{Call, Kernel, Kernels, Made, Site, Type};

/// The version of the interface.
const ABI: u32 = 1;

/// Most kernels of one library.
const MOST: u32 = 1 << 16;

/// `TENURE_IN_PLACE`.
const IN_PLACE: u32 = 1;

/// Why a library cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum LibraryError {
    /// It cannot be loaded, or is no library.
    #[error("{path}: cannot be loaded: {reason}")]
    Load {
        /// The file.
        path: String,
        /// What the system says.
        reason: String,
    },
    /// It does not keep to the header.
    #[error("{path}: {reason}; build it with the header tenure_kernel.h of this version")]
    Interface {
        /// The file.
        path: String,
        /// What is wrong.
        reason: String,
    },
}

/// `tenure_tensor`.
#[repr(C)]
#[derive(Clone, Copy)]
struct CTensor {
    data: *mut c_void,
    bytes: u64,
    dims: *const u64,
    rank: u32,
    dtype: u32,
}

/// `tenure_attr`.
#[repr(C)]
struct CAttr {
    name: *const c_char,
    kind: u32,
    count: u32,
    i: i64,
    f: f64,
    s: *const c_char,
    ints: *const i64,
}

/// `tenure_node`.
#[repr(C)]
struct CNode {
    name: *const c_char,
    inputs: *const CTensor,
    outputs: *const CTensor,
    attrs: *const CAttr,
    input_count: u32,
    output_count: u32,
    attr_count: u32,
}

type MakeFn = unsafe extern "C" fn(*const CNode, *mut *mut c_void) -> *const c_char;
type RunFn =
    unsafe extern "C" fn(*mut c_void, *const CTensor, u32, *const CTensor, u32) -> *const c_char;
type DropFn = unsafe extern "C" fn(*mut c_void);

/// `tenure_kernel`.
#[repr(C)]
#[derive(Clone, Copy)]
struct CKernel {
    domain: *const c_char,
    op: *const c_char,
    flags: u32,
    make: Option<MakeFn>,
    run: Option<RunFn>,
    drop: Option<DropFn>,
}

/// `tenure_kernel_table`.
#[repr(C)]
struct CTable {
    abi: u32,
    count: u32,
    kernels: *const CKernel,
}

/// What a kernel of a library needs: its functions, and the library, which stays loaded for as long.
#[derive(Clone)]
struct Functions {
    flags: u32,
    make: Option<MakeFn>,
    run: RunFn,
    drop: Option<DropFn>,
    /// Never looked at: it must outlive the functions.
    _library: Arc<Library>,
}

impl Kernels {
    /// Adds the kernels of a shared library, which take the place of those that their operators had.
    /// Gives the operators, those of the default domain without a domain.
    ///
    /// Loading a library runs its code: load only what you would run as a program.
    ///
    /// # Errors
    /// [`LibraryError`].
    pub fn add_library(&mut self, path: &Path) -> Result<Vec<String>, LibraryError> {
        let shown = path.display().to_string();
        let wrong = |reason: String| LibraryError::Interface {
            path: shown.clone(),
            reason,
        };
        let failed = |e: libloading::Error| LibraryError::Load {
            path: shown.clone(),
            reason: e.to_string(),
        };
        // A bare name would be looked for among the system's libraries.
        let file = std::path::absolute(path).unwrap_or_else(|_| path.to_owned());
        // Safety: the user has asked for this code to be run, and vouches for it.
        #[expect(unsafe_code, reason = "a library is code from outside")]
        let library = Arc::new(unsafe { Library::new(file) }.map_err(failed)?);
        let kernels: Vec<CKernel> = {
            // Safety: by the header this is the type of the function; the table and its kernels
            // stay for as long as the library is loaded, and are copied before that ends.
            #[expect(unsafe_code, reason = "the one function that the header asks for")]
            unsafe {
                let entry = library
                    .get::<unsafe extern "C" fn() -> *const CTable>(b"tenure_kernels\0")
                    .map_err(failed)?;
                let table = entry();
                if table.is_null() {
                    return Err(wrong("tenure_kernels() gives no table".to_owned()));
                }
                let CTable {
                    abi,
                    count,
                    kernels,
                } = *table;
                if abi != ABI {
                    return Err(wrong(format!(
                        "it is made for version {abi} of the interface, and this is version {ABI}"
                    )));
                }
                if count > MOST || (count > 0 && kernels.is_null()) {
                    return Err(wrong(format!("a table of {count} kernels is none")));
                }
                match count {
                    0 => Vec::new(),
                    n => std::slice::from_raw_parts(kernels, n as usize).to_vec(),
                }
            }
        };
        let mut names = Vec::new();
        for kernel in kernels {
            let domain = text(kernel.domain).unwrap_or_default();
            let (Some(op), Some(run)) = (text(kernel.op), kernel.run) else {
                return Err(wrong("a kernel has no operator or no `run`".to_owned()));
            };
            let functions = Functions {
                flags: kernel.flags,
                make: kernel.make,
                run,
                drop: kernel.drop,
                _library: library.clone(),
            };
            names.push(super::key(&domain, &op));
            self.add(&domain, &op, move |site: &Site<'_>| {
                Foreign::make(&functions, site)
            });
        }
        Ok(names)
    }
}

/// A text of a library; none for a null pointer.
fn text(at: *const c_char) -> Option<String> {
    if at.is_null() {
        return None;
    }
    // Safety: by the header it ends with a zero and stays there for as long as the library.
    #[expect(unsafe_code, reason = "texts of C have no length")]
    let text = unsafe { CStr::from_ptr(at) };
    Some(text.to_string_lossy().into_owned())
}

/// The number that ONNX gives a type; 0 where it has none.
fn onnx_number(dtype: DType) -> u32 {
    match dtype {
        DType::F32 => 1,
        DType::U8 => 2,
        DType::I8 => 3,
        DType::U16 => 4,
        DType::I16 => 5,
        DType::I32 => 6,
        DType::I64 => 7,
        DType::Bool => 9,
        DType::F16 => 10,
        DType::F64 => 11,
        DType::U32 => 12,
        DType::U64 => 13,
        DType::BF16 => 16,
        _ => 0,
    }
}

/// An attribute, and what a pointer to it needs.
struct Kept<'a> {
    name: CString,
    text: Option<CString>,
    ints: Option<Vec<i64>>,
    attr: &'a Attr,
}

/// The kernel of a node, in a library.
struct Foreign {
    functions: Functions,
    state: *mut c_void,
    /// Dimensions that the tensors point to.
    _dims: Vec<Vec<u64>>,
    inputs: Vec<CTensor>,
    outputs: Vec<CTensor>,
}

// Safety: by the header the functions are called from any thread, for one state by one at a time;
// the tensors point to memory that is read and written in `run` alone, and to `_dims`, which is
// this kernel's own.
#[expect(unsafe_code, reason = "pointers of C say nothing of threads")]
unsafe impl Send for Foreign {}

impl fmt::Debug for Foreign {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Foreign").finish_non_exhaustive()
    }
}

impl Foreign {
    fn make(functions: &Functions, site: &Site<'_>) -> Made {
        let mut dims: Vec<Vec<u64>> = Vec::new();
        let mut tensor = |t: Option<Type>| -> Result<CTensor, String> {
            let Some(t) = t else {
                return Ok(CTensor {
                    data: ptr::null_mut(),
                    bytes: 0,
                    dims: ptr::null(),
                    rank: 0,
                    dtype: 0,
                });
            };
            let list: Vec<u64> = t.dims.iter().map(|&d| d as u64).collect();
            let elements = t.elements() as u64;
            let bytes = t.dtype.bytes(elements);
            dims.push(list);
            let list = &dims[dims.len() - 1];
            Ok(CTensor {
                data: ptr::null_mut(),
                bytes: bytes.ok_or_else(|| format!("elements of type {} have no size", t.dtype))?,
                // The list itself stays where it is when `dims` grows.
                dims: list.as_ptr(),
                rank: u32::try_from(list.len()).unwrap_or(u32::MAX),
                dtype: onnx_number(t.dtype),
            })
        };
        let inputs = (0..site.inputs()).map(|i| tensor(site.optional(i)?));
        let inputs = inputs.collect::<Result<Vec<_>, String>>()?;
        let outputs = (0..site.outputs()).map(|i| match site.has_output(i) {
            true => tensor(Some(site.output(i)?)),
            false => tensor(None),
        });
        let outputs = outputs.collect::<Result<Vec<_>, String>>()?;
        let mut kernel = Foreign {
            functions: functions.clone(),
            state: ptr::null_mut(),
            _dims: dims,
            inputs,
            outputs,
        };
        kernel.begin(site)?;
        Ok(Box::new(kernel))
    }

    /// Lets the library look at the node.
    fn begin(&mut self, site: &Site<'_>) -> Result<(), String> {
        let Some(make) = self.functions.make else {
            return Ok(());
        };
        let text = |text: &str| CString::new(text.replace('\0', " ")).unwrap_or_default();
        let kept: Vec<Kept<'_>> = (site.attrs().iter())
            .map(|(name, attr)| Kept {
                name: text(name),
                text: match attr {
                    Attr::Str(s) => Some(text(s)),
                    _ => None,
                },
                ints: site.ints(name),
                attr,
            })
            .collect();
        let attrs: Vec<CAttr> = (kept.iter())
            .filter_map(|kept| {
                let mut c = CAttr {
                    name: kept.name.as_ptr(),
                    kind: 0,
                    count: 0,
                    i: 0,
                    f: 0.0,
                    s: ptr::null(),
                    ints: ptr::null(),
                };
                match (kept.attr, &kept.text, &kept.ints) {
                    (Attr::Int(_) | Attr::Bool(_), ..) => (c.kind, c.i) = (1, kept.attr.as_int()?),
                    (Attr::Float(f), ..) => (c.kind, c.f) = (2, *f),
                    (_, Some(s), _) => (c.kind, c.s) = (3, s.as_ptr()),
                    (_, _, Some(list)) => {
                        c.count = u32::try_from(list.len()).ok()?;
                        (c.kind, c.ints) = (4, list.as_ptr());
                    }
                    _ => return None,
                }
                Some(c)
            })
            .collect();
        let name = text(site.name());
        let count = |n: usize| u32::try_from(n).map_err(|_| "it has too many parts".to_owned());
        let node = CNode {
            name: name.as_ptr(),
            inputs: self.inputs.as_ptr(),
            outputs: self.outputs.as_ptr(),
            attrs: attrs.as_ptr(),
            input_count: count(self.inputs.len())?,
            output_count: count(self.outputs.len())?,
            attr_count: count(attrs.len())?,
        };
        // Safety: the node and all that it points to outlive the call, which is what the header
        // promises; the function keeps to the header.
        #[expect(unsafe_code, reason = "the library's code")]
        let refused = unsafe { make(&raw const node, &raw mut self.state) };
        self::text(refused).map_or(Ok(()), Err)
    }
}

impl Kernel for Foreign {
    fn run(&mut self, call: &mut Call<'_>) -> Result<(), String> {
        for (tensor, bytes) in self.outputs.iter_mut().zip(call.write_all()) {
            tensor.data = pointer(bytes.as_mut_ptr(), bytes.len());
        }
        for (i, tensor) in self.inputs.iter_mut().enumerate() {
            let same = call.over(i).and_then(|j| self.outputs.get(j));
            tensor.data = match same {
                Some(output) => output.data,
                None => {
                    let bytes: &[u8] = call.read(i);
                    pointer(bytes.as_ptr().cast_mut(), bytes.len())
                }
            };
        }
        let [inputs, outputs] = [&self.inputs, &self.outputs];
        // Safety: all tensors are there for the time of the call, of the sizes that they say, and
        // nobody else uses them (`Call`); that the function writes to outputs alone is its word.
        #[expect(unsafe_code, reason = "the library's code")]
        let wrong = unsafe {
            (self.functions.run)(
                self.state,
                inputs.as_ptr(),
                u32::try_from(inputs.len()).unwrap_or(0),
                outputs.as_ptr(),
                u32::try_from(outputs.len()).unwrap_or(0),
            )
        };
        text(wrong).map_or(Ok(()), Err)
    }

    fn may_be_over(&self, _: usize, output: usize) -> bool {
        output == 0 && self.functions.flags & IN_PLACE != 0
    }
}

/// Where some bytes are; null for none.
fn pointer(at: *mut u8, len: usize) -> *mut c_void {
    match len {
        0 => ptr::null_mut(),
        _ => at.cast(),
    }
}

impl Drop for Foreign {
    fn drop(&mut self) {
        if let Some(drop) = self.functions.drop
            && !self.state.is_null()
        {
            // Safety: the state is the library's own, made once and given back once.
            #[expect(unsafe_code, reason = "the library's code")]
            unsafe {
                drop(self.state);
            }
        }
    }
}
