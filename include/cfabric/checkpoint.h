/* cfabric/checkpoint.h: files with tensors in them: PyTorch's own format, safetensors, TorchScript.
 *
 * fabric_save and fabric_load (fabric.h) work on whole training states; the functions here are torch.save, torch.load and
 * safetensors.torch for single files. A file is replaced atomically: after a failure or a kill the old one is still there. Errors
 * name the file, what was found and what was expected. Nothing in a file is ever executed. */
#ifndef CFABRIC_CHECKPOINT_H
#define CFABRIC_CHECKPOINT_H

#include <cfabric/nn.h>
#include <cfabric/value.h>

TH_BEGIN_DECLS

/** torch.save(value, path): what torch.load(path, weights_only=True) reads. Tensors that share a storage still do afterwards.
 * Parent folders are made. `value` stays the caller's; it must contain no live objects (take their state dicts). Any thread. */
FABRIC_API th_status th_save(th_value *value, const char *path);

/** torch.load(path, map_location="cpu", weights_only=True): zip files and those from before PyTorch 1.6. Every checksum is
 * verified. Tuples and torch.Size become tuples, sets lists, dtypes and devices their names, complex numbers 0-dimensional
 * tensors; a class or function outside the list is TH_ERR_DATA naming it. [owned] */
FABRIC_API FABRIC_NODISCARD th_value *th_load(const char *path);

/* ---- safetensors: a flat dict of dense tensors, no sharing, an optional text-to-text dict of metadata */

/** safetensors.torch.save_file. `tensors` is a dict of tensors (made contiguous where they are not); `metadata` a dict of
 * strings, or NULL. Both stay the caller's. */
FABRIC_API th_status th_safetensors_save(th_value *tensors, const char *path, th_value *metadata);
/** safetensors.torch.load_file: name to tensor. [owned] */
FABRIC_API FABRIC_NODISCARD th_value *th_safetensors_load(const char *path);

/** A file opened for reading single tensors (safe_open): only its header has been read. [owned] th_safetensors_close */
typedef struct th_safetensors th_safetensors;
FABRIC_API FABRIC_NODISCARD th_safetensors *th_safetensors_open(const char *path);
FABRIC_API void th_safetensors_close(th_safetensors *file);
/** How many tensors, and their names in the order of their data. [borrowed] from the file; NULL when out of range. */
FABRIC_API size_t th_safetensors_size(th_safetensors *file);
FABRIC_API const char *th_safetensors_name(th_safetensors *file, size_t i);
/** What the header says about a tensor. An unknown name is TH_ERR_KEY. `sizes` [borrowed] from the file. */
FABRIC_API th_status th_safetensors_info(th_safetensors *file, const char *name, th_dtype *dtype, th_ints *sizes);
/** Reads one tensor: a view of the mapped file, so nothing is copied until it is used. It stays valid after closing; the file
 * must not be changed in place meanwhile. Writing to it changes only this process's copy. [scoped] */
FABRIC_API th_tensor *th_safetensors_get(th_safetensors *file, const char *name);
/** The metadata, an empty dict if there is none. [owned] */
FABRIC_API FABRIC_NODISCARD th_value *th_safetensors_metadata(th_safetensors *file);

/* ---- TorchScript: modules that Python exported with torch.jit.save */

/** torch.jit.load(path, map_location="cpu"): a module whose code comes from the file. Its parameters and buffers have PyTorch's
 * dotted names and train, move and save like any other module's. Several inputs and outputs go through th_forward_n; only tensors
 * are possible. [owned] */
FABRIC_API FABRIC_NODISCARD th_module *th_nn_script_load(const char *path);
/** torch.jit.save: writes such a module with its present parameters, atomically. Another module is TH_ERR_TYPE. */
FABRIC_API th_status th_nn_script_save(th_module *module, const char *path);

TH_END_DECLS
#endif
