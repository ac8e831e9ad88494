/* kernel.c - the kernels that a context has loaded. */
#include "kernel.h"

#include "cubin.h"
#include "error.h"

#include <stdlib.h>
#include <string.h>

struct loaded_kernel {
    struct loaded_kernel *next;
    const char *source; /* a constant of the engine */
    char *definitions;
    char *cubin; /* kept: the driver may read it as long as the module lives */
    void *module;
    void *function;
};

void lgh__kernels_init(lgh__kernels *kernels) {
    pthread_mutex_init(&kernels->lock, NULL);
    kernels->first = NULL;
}

static void release_kernel(struct loaded_kernel *k) {
    lgh__driver_module_unload(k->module);
    free(k->cubin);
    free(k->definitions);
    free(k);
}

void lgh__kernels_release(lgh__kernels *kernels) {
    for (struct loaded_kernel *k = kernels->first, *next; k; k = next) {
        next = k->next;
        release_kernel(k);
    }
    pthread_mutex_destroy(&kernels->lock);
}

static const struct loaded_kernel *find(const lgh__kernels *kernels, const lgh__kernel_name *name) {
    const struct loaded_kernel *k = kernels->first;
    while (k &&
           (strcmp(k->source, name->source) != 0 || strcmp(k->definitions, name->definitions) != 0))
        k = k->next;
    return k;
}

static lgh_status load_into(struct loaded_kernel *k, const lgh__device *device,
                            const lgh__kernel_name *name, const char **note) {
    const lgh__compilation what = {name->source, name->definitions, device->arch};
    lgh__compiled compiled;
    k->source = name->source;
    k->definitions = strdup(name->definitions);
    RETURN_IF(!k->definitions, LGH_ERROR_OUT_OF_MEMORY, "no memory to load kernel %s",
              name->source);
    FORWARD(lgh__cubin_get(&compiled, &what, note));
    free(compiled.log);
    k->cubin = compiled.cubin;
    FORWARD(lgh__driver_module_load(&k->module, k->cubin));
    return lgh__driver_module_kernel(&k->function, k->module, name->entry);
}

static lgh_status load(lgh__kernels *kernels, const lgh__device *device,
                       const lgh__kernel_name *name, const char **note) {
    struct loaded_kernel *k = calloc(1, sizeof *k);
    RETURN_IF(!k, LGH_ERROR_OUT_OF_MEMORY, "no memory to load kernel %s", name->source);
    lgh_status status = load_into(k, device, name, note);
    if (status != LGH_SUCCESS) {
        release_kernel(k);
        return status;
    }
    k->next = kernels->first;
    kernels->first = k;
    return LGH_SUCCESS;
}

lgh_status lgh__kernels_get(lgh__kernels *kernels, const lgh__device *device,
                            const lgh__kernel_name *name, void **function, const char **note) {
    lgh_status status = LGH_SUCCESS;
    *note = NULL;
    pthread_mutex_lock(&kernels->lock);
    if (!find(kernels, name))
        status = load(kernels, device, name, note);
    if (status == LGH_SUCCESS)
        *function = find(kernels, name)->function;
    pthread_mutex_unlock(&kernels->lock);
    return status;
}
