/* cuda_graph.h - capturing a stream's work into a CUDA graph, for tests. */
#ifndef LGH_CUDA_GRAPH_H
#define LGH_CUDA_GRAPH_H

#include "loggerhead/loggerhead.h"

/** A captured piece of work. */
typedef struct cuda_graph {
    void *graph;
    void *executable;
} cuda_graph;

/** Begins to record what is enqueued on the stream. Until the end, a call of any thread that could
 *  upset a capture (an allocation, a synchronisation) fails it. The device's context is current. */
void cuda_graph_begin(void *stream);
cuda_graph cuda_graph_end(void *stream);

void cuda_graph_launch(const cuda_graph *graph, void *stream);
void cuda_graph_destroy(cuda_graph *graph);

#endif
