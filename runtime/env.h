/* env.h - every environment variable that the library reads. */
#ifndef LGH_ENV_H
#define LGH_ENV_H

/** LGH_CUDA_PATH, LGH_NVRTC_PATH, LGH_CUBLASLT_PATH: a shared object to load, before all others.
 *  `library` is the upper-case middle part. NULL if unset or empty. */
const char *lgh__env_library_path(const char *library);

/** LGH_CACHE_DIR, else XDG_CACHE_HOME/loggerhead, else HOME/.cache/loggerhead, written to `path`.
 *  False if none is set or the result does not fit. */
int lgh__env_cache_directory(char *path, unsigned long capacity);

/** Folders named by the CUDA toolkit's and Python's own variables; NULL if unset or empty. */
const char *lgh__env_cuda_home(void);
const char *lgh__env_virtual_env(void);
const char *lgh__env_conda_prefix(void);
const char *lgh__env_home(void);

#endif
