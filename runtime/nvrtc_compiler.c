/* nvrtc_compiler.c - NVRTC, loaded at run time. */
#include "nvrtc_compiler.h"

#include "error.h"
#include "library.h"
#include "sources.h"

#include <nvrtc.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#define NVRTC_FUNCTIONS(X)                                                                         \
    X(nvrtcVersion)                                                                                \
    X(nvrtcGetErrorString)                                                                         \
    X(nvrtcCreateProgram)                                                                          \
    X(nvrtcDestroyProgram)                                                                         \
    X(nvrtcCompileProgram)                                                                         \
    X(nvrtcGetProgramLogSize)                                                                      \
    X(nvrtcGetProgramLog)                                                                          \
    X(nvrtcGetCUBINSize)                                                                           \
    X(nvrtcGetCUBIN)

static struct nvrtc_table {
#define NVRTC_MEMBER(name) __typeof__(name) *name;
    NVRTC_FUNCTIONS(NVRTC_MEMBER)
#undef NVRTC_MEMBER
} nvrtc;

static const char *const sonames[] = {"libnvrtc.so.13", "libnvrtc.so.12"};
static const lgh__library_name library = {
    "NVRTC", "NVRTC (libnvrtc.so)",
    "install the CUDA toolkit 12 or newer, or the Python wheel nvidia-cuda-nvrtc", sonames, 2};

#define NVRTC_(call)                                                                               \
    do {                                                                                           \
        nvrtcResult nvrtc_result_ = nvrtc.call;                                                    \
        RETURN_IF(nvrtc_result_ != NVRTC_SUCCESS, LGH_ERROR_COMPILE, "%s gave %s", #call,          \
                  nvrtc.nvrtcGetErrorString(nvrtc_result_));                                       \
    } while (0)

static lgh_status load_nvrtc(void) {
    void *handle;
    FORWARD(lgh__library_open(&handle, &library));
#define NVRTC_LOAD(name) FORWARD(lgh__library_symbol(handle, &library, #name, &nvrtc.name));
    NVRTC_FUNCTIONS(NVRTC_LOAD)
#undef NVRTC_LOAD
    return LGH_SUCCESS;
}

static lgh_status ensure_nvrtc(void) {
    static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
    static int loaded;
    pthread_mutex_lock(&lock);
    lgh_status status = loaded ? LGH_SUCCESS : load_nvrtc();
    loaded = status == LGH_SUCCESS;
    pthread_mutex_unlock(&lock);
    return status;
}

lgh_status lgh__nvrtc_identity(char *text, size_t capacity) {
    int major, minor;
    struct stat file;
    FORWARD(ensure_nvrtc());
    NVRTC_(nvrtcVersion(&major, &minor));
    const void *address;
    memcpy(&address, &nvrtc.nvrtcVersion, sizeof address);
    const char *path = lgh__library_file(address);
    long long bytes = path && stat(path, &file) == 0 ? (long long)file.st_size : 0;
    snprintf(text, capacity, "%d.%d-%lld", major, minor, bytes);
    return LGH_SUCCESS;
}

/* Each ptxas option needs a --ptxas-options of its own. */
static const char *const fixed_options[] = {
    "--std=c++17",
    "--minimal",
    "--ptxas-options=--warn-on-spills",
};
#define FIXED_OPTION_COUNT (int)(sizeof fixed_options / sizeof *fixed_options)

void lgh__nvrtc_options(char *text, size_t capacity, const char *arch) {
    int used = snprintf(text, capacity, "--gpu-architecture=%s\n", arch);
    for (int i = 0; i < FIXED_OPTION_COUNT && (size_t)used < capacity; ++i)
        used += snprintf(text + used, capacity - (size_t)used, "%s\n", fixed_options[i]);
}

/* Advisories by which ptxas says that the kernel is not the one that was written. */
static const char *fatal_advisory(const char *log) {
    static const char *const codes[] = {"C7508", "C7510", "C7511", "C7519",
                                        "Registers are spilled"};
    for (size_t i = 0; i < sizeof codes / sizeof *codes; ++i)
        if (strstr(log, codes[i]))
            return codes[i];
    return NULL;
}

static lgh_status fetch_log(nvrtcProgram program, char **log) {
    size_t bytes = 0;
    NVRTC_(nvrtcGetProgramLogSize(program, &bytes));
    *log = calloc(1, bytes + 1);
    RETURN_IF(!*log, LGH_ERROR_OUT_OF_MEMORY, "no memory for a compiler log of %zu bytes", bytes);
    if (bytes > 0)
        NVRTC_(nvrtcGetProgramLog(program, *log));
    return LGH_SUCCESS;
}

static lgh_status fetch_cubin(nvrtcProgram program, lgh__compiled *out) {
    NVRTC_(nvrtcGetCUBINSize(program, &out->cubin_bytes));
    out->cubin = malloc(out->cubin_bytes);
    RETURN_IF(!out->cubin, LGH_ERROR_OUT_OF_MEMORY, "no memory for a cubin of %zu bytes",
              out->cubin_bytes);
    NVRTC_(nvrtcGetCUBIN(program, out->cubin));
    return LGH_SUCCESS;
}

static nvrtcResult run_compiler(nvrtcProgram program, const char *arch) {
    char arch_option[64];
    const char *options[FIXED_OPTION_COUNT + 1];
    snprintf(arch_option, sizeof arch_option, "--gpu-architecture=%s", arch);
    options[0] = arch_option;
    for (int i = 0; i < FIXED_OPTION_COUNT; ++i)
        options[i + 1] = fixed_options[i];
    return nvrtc.nvrtcCompileProgram(program, FIXED_OPTION_COUNT + 1, options);
}

static lgh_status compile_program(nvrtcProgram program, lgh__compiled *out,
                                  const lgh__compilation *what) {
    char options[512];
    nvrtcResult result = run_compiler(program, what->arch);
    FORWARD(fetch_log(program, &out->log)); /* before the result is judged */
    const char *advisory = fatal_advisory(out->log);
    lgh__nvrtc_options(options, sizeof options, what->arch);
    RETURN_IF(result != NVRTC_SUCCESS || advisory, LGH_ERROR_COMPILE,
              "kernel %s: %s\noptions:\n%sdefinitions:\n%slog:\n%s", what->source_name,
              result != NVRTC_SUCCESS ? nvrtc.nvrtcGetErrorString(result) : advisory, options,
              what->definitions, out->log);
    return fetch_cubin(program, out);
}

/* Puts the definitions before the kernel's source; the other sources are offered as headers. */
static lgh_status create_program(nvrtcProgram *program, const lgh__compilation *what) {
    const lgh__source *source = lgh__source_find(what->source_name);
    RETURN_IF(!source, LGH_ERROR_INTERNAL, "no kernel source named %s", what->source_name);
    size_t head = strlen(what->definitions);
    char *text = malloc(head + source->length + 1);
    const char **names = calloc(lgh__source_count, sizeof *names);
    const char **texts = calloc(lgh__source_count, sizeof *texts);
    lgh_status status = LGH_SUCCESS;
    nvrtcResult result = NVRTC_ERROR_OUT_OF_MEMORY;
    if (text && names && texts) {
        memcpy(text, what->definitions, head);
        memcpy(text + head, source->text, source->length + 1);
        for (size_t i = 0; i < lgh__source_count; ++i) {
            names[i] = lgh__sources[i].name;
            texts[i] = lgh__sources[i].text;
        }
        result = nvrtc.nvrtcCreateProgram(program, text, what->source_name, (int)lgh__source_count,
                                          texts, names);
    }
    if (result != NVRTC_SUCCESS)
        status = FAIL(LGH_ERROR_COMPILE, "nvrtcCreateProgram for %s gave %s", what->source_name,
                      nvrtc.nvrtcGetErrorString(result));
    free(texts);
    free(names);
    free(text);
    return status;
}

lgh_status lgh__nvrtc_compile(lgh__compiled *out, const lgh__compilation *what) {
    nvrtcProgram program;
    memset(out, 0, sizeof *out);
    FORWARD(ensure_nvrtc());
    FORWARD(create_program(&program, what));
    lgh_status status = compile_program(program, out, what);
    nvrtc.nvrtcDestroyProgram(&program);
    if (status != LGH_SUCCESS) {
        free(out->cubin);
        free(out->log);
        memset(out, 0, sizeof *out);
    }
    return status;
}
