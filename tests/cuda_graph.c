/* cuda_graph.c - capturing a stream's work into a CUDA graph. */
#include "cuda_graph.h"

#include "harness.h"

#include <cuda.h>
#include <dlfcn.h>

/* The driver is in the process already; the table has what the library itself does not need. */
static void *symbol(const char *name) {
    static void *driver;
    if (!driver)
        driver = dlopen("libcuda.so.1", RTLD_NOW);
    void *found = driver ? dlsym(driver, name) : NULL;
    if (!found)
        fail_msg("the CUDA driver has no %s", name);
    return found;
}

/* Calls a function of the driver by its exported name, with the type that cuda.h gives it. */
#define DRIVER(type, exported, ...)                                                                \
    do {                                                                                           \
        __typeof__(type) *function_;                                                               \
        *(void **)&function_ = symbol(exported);                                                   \
        CUresult result_ = function_(__VA_ARGS__);                                                 \
        if (result_ != CUDA_SUCCESS)                                                               \
            fail_msg("%s gave %d", exported, (int)result_);                                        \
    } while (0)

void cuda_graph_begin(void *stream) {
    DRIVER(cuStreamBeginCapture, "cuStreamBeginCapture_v2", stream, CU_STREAM_CAPTURE_MODE_GLOBAL);
}

cuda_graph cuda_graph_end(void *stream) {
    CUgraph graph;
    CUgraphExec executable;
    DRIVER(cuStreamEndCapture, "cuStreamEndCapture", stream, &graph);
    DRIVER(cuGraphInstantiateWithFlags, "cuGraphInstantiateWithFlags", &executable, graph, 0);
    return (cuda_graph){graph, executable};
}

void cuda_graph_launch(const cuda_graph *graph, void *stream) {
    DRIVER(cuGraphLaunch, "cuGraphLaunch", graph->executable, stream);
}

void cuda_graph_destroy(cuda_graph *graph) {
    DRIVER(cuGraphExecDestroy, "cuGraphExecDestroy", graph->executable);
    DRIVER(cuGraphDestroy, "cuGraphDestroy", graph->graph);
}
