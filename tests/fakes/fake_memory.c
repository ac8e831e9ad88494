/* fake_memory.c - device memory of the fakes: host memory in one reserved range of addresses, each
 * allocation between inaccessible pages, with a note for each byte whether it was written.
 *
 * An allocation ends where its last page ends, up to the 256 bytes of its alignment; what lies
 * around it on its own pages holds a pattern that is checked when it is freed.
 */
#include "fake_state.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#define RESERVED_BYTES ((size_t)256 << 30)
#define TOTAL_BYTES ((size_t)16 << 30) /* what cuMemGetInfo says */
#define PAGE_BYTES ((size_t)4096)
#define ALIGNMENT ((size_t)256)
#define UNUSED_BYTE 0xa5
/* Not a number as FP32 and as BF16: a result that used it shows it. */
#define FRESH_BYTE 0xff

typedef struct allocation {
    struct allocation *next;
    char *pages; /* after one inaccessible page */
    size_t page_bytes;
    char *data;
    size_t bytes;
    size_t touched;
    unsigned char *written; /* one for each byte of data */
    int of_test;
} allocation;

static struct {
    pthread_mutex_t lock;
    char *reserved;
    char *cursor; /* freed addresses are used again only after all others */
    allocation *first;
    size_t bytes; /* of the library's live allocations */
    size_t peak;
} memory = {.lock = PTHREAD_MUTEX_INITIALIZER};

static size_t round_up(size_t bytes, size_t unit) {
    return (bytes + unit - 1) / unit * unit;
}

static int reserve(void) {
    if (memory.reserved)
        return 1;
    void *reserved =
        mmap(NULL, RESERVED_BYTES, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (reserved == MAP_FAILED)
        return 0;
    memory.reserved = memory.cursor = reserved;
    return 1;
}

static const allocation *overlapping(const char *from, const char *to) {
    const allocation *a = memory.first;
    while (a && (a->pages + a->page_bytes <= from || to <= a->pages))
        a = a->next;
    return a;
}

/* A free place for these pages and an inaccessible one before them; NULL if there is none. */
static char *find_place(size_t page_bytes) {
    char *at = memory.cursor;
    for (int rounds = 0; rounds < 2;) {
        if (at + PAGE_BYTES + page_bytes + PAGE_BYTES > memory.reserved + RESERVED_BYTES) {
            at = memory.reserved;
            ++rounds;
            continue;
        }
        const allocation *in_the_way = overlapping(at, at + PAGE_BYTES + page_bytes + PAGE_BYTES);
        if (!in_the_way) {
            memory.cursor = at + PAGE_BYTES + page_bytes;
            return at + PAGE_BYTES;
        }
        at = in_the_way->pages + in_the_way->page_bytes;
    }
    return NULL;
}

static int map_pages(allocation *a) {
    a->page_bytes = round_up(a->bytes, PAGE_BYTES);
    a->pages = reserve() ? find_place(a->page_bytes) : NULL;
    a->written = calloc(1, a->bytes);
    if (!a->pages || !a->written ||
        mprotect(a->pages, a->page_bytes, PROT_READ | PROT_WRITE) != 0) {
        free(a->written);
        return 0;
    }
    a->data = a->pages + a->page_bytes - round_up(a->bytes, ALIGNMENT);
    memset(a->pages, UNUSED_BYTE, (size_t)(a->data - a->pages));
    memset(a->data, FRESH_BYTE, a->bytes);
    memset(a->data + a->bytes, UNUSED_BYTE, round_up(a->bytes, ALIGNMENT) - a->bytes);
    return 1;
}

void *fake_memory_allocate(size_t bytes, int of_test) {
    allocation *a = calloc(1, sizeof *a);
    if (!a)
        return NULL;
    a->bytes = bytes;
    a->of_test = of_test;
    pthread_mutex_lock(&memory.lock);
    int mapped = bytes <= TOTAL_BYTES - memory.bytes && map_pages(a);
    if (mapped) {
        a->next = memory.first;
        memory.first = a;
        memory.bytes += of_test ? 0 : bytes;
        memory.peak = memory.bytes > memory.peak ? memory.bytes : memory.peak;
    }
    pthread_mutex_unlock(&memory.lock);
    if (mapped)
        return a->data;
    free(a);
    return NULL;
}

static int holds_pattern(const char *from, const char *to) {
    while (from < to && (unsigned char)*from == UNUSED_BYTE)
        ++from;
    return from >= to;
}

static void unmap(allocation *a, const char *what) {
    if (!holds_pattern(a->pages, a->data) ||
        !holds_pattern(a->data + a->bytes, a->pages + a->page_bytes))
        fake_violation("%s: bytes beside an allocation of %zu were written", what, a->bytes);
    madvise(a->pages, a->page_bytes, MADV_DONTNEED);
    mprotect(a->pages, a->page_bytes, PROT_NONE);
    free(a->written);
    free(a);
}

int fake_memory_free(void *data, const char *what) {
    pthread_mutex_lock(&memory.lock);
    allocation **link = &memory.first;
    while (*link && (*link)->data != data)
        link = &(*link)->next;
    allocation *found = *link;
    if (found) {
        *link = found->next;
        memory.bytes -= found->of_test ? 0 : found->bytes;
    }
    pthread_mutex_unlock(&memory.lock);
    if (found)
        unmap(found, what);
    else
        fake_violation("%s: %p is not the start of a live allocation", what, data);
    return found != NULL;
}

int fake_is_device(const void *pointer) {
    const char *at = pointer;
    return memory.reserved && at >= memory.reserved && at < memory.reserved + RESERVED_BYTES;
}

void fake_memory_count(fake_cuda_live *live) {
    pthread_mutex_lock(&memory.lock);
    for (const allocation *a = memory.first; a; a = a->next)
        live->allocations += !a->of_test;
    live->bytes = memory.bytes;
    live->peak = memory.peak;
    pthread_mutex_unlock(&memory.lock);
}

void fake_memory_reset_peak(void) {
    pthread_mutex_lock(&memory.lock);
    memory.peak = memory.bytes;
    pthread_mutex_unlock(&memory.lock);
}

size_t fake_memory_total(void) {
    return TOTAL_BYTES;
}

/* ---- Access -------------------------------------------------------------------------------- */

/* The live allocation that holds all the bytes, or NULL. */
static allocation *find_holder(const void *data, size_t bytes) {
    const char *from = data;
    allocation *a = memory.first;
    while (a && (from < a->data || from >= a->data + a->bytes))
        a = a->next;
    return a && bytes <= (size_t)(a->data + a->bytes - from) ? a : NULL;
}

static int all_written(const allocation *a, size_t offset, size_t bytes) {
    return memchr(a->written + offset, 0, bytes) == NULL;
}

/* The first row of which not all bytes were written, or the number of rows. */
static int64_t first_unwritten(const allocation *a, size_t offset, const fake_rows *r) {
    int64_t row = 0;
    while (row < r->rows &&
           all_written(a, offset + (size_t)(row * r->stride), (size_t)r->row_bytes))
        ++row;
    return row;
}

static void mark(allocation *a, size_t offset, const fake_rows *r, int written) {
    for (int64_t row = 0; row < r->rows; ++row)
        memset(a->written + offset + row * r->stride, written, (size_t)r->row_bytes);
}

int fake_access(fake_rows r, unsigned how, const char *what) {
    if (r.rows < 1 || r.row_bytes < 1 || r.stride < 0) {
        fake_violation("%s: %lld rows of %lld bytes", what, (long long)r.rows,
                       (long long)r.row_bytes);
        return 0;
    }
    const size_t bytes = (size_t)((r.rows - 1) * r.stride + r.row_bytes);
    pthread_mutex_lock(&memory.lock);
    allocation *a = find_holder(r.data, bytes);
    int64_t unwritten = r.rows;
    if (a) {
        const size_t offset = (size_t)((const char *)r.data - a->data);
        a->touched = offset + bytes > a->touched ? offset + bytes : a->touched;
        if (how & FAKE_READ)
            unwritten = first_unwritten(a, offset, &r);
        if (how & (FAKE_WRITE | FAKE_FORGET))
            mark(a, offset, &r, (how & FAKE_WRITE) != 0);
    }
    pthread_mutex_unlock(&memory.lock);
    if (!a)
        fake_violation("%s: %zu bytes at %p are not inside one live allocation", what, bytes,
                       r.data);
    if (unwritten < r.rows)
        fake_violation("%s: row %lld of %lld is read before all of it was written", what,
                       (long long)unwritten, (long long)r.rows);
    return a != NULL;
}

void fake_copy_marks(void *to, const void *from, size_t bytes) {
    pthread_mutex_lock(&memory.lock);
    allocation *target = find_holder(to, bytes);
    const allocation *source = find_holder(from, bytes);
    if (target && source)
        memmove(target->written + ((char *)to - target->data),
                source->written + ((const char *)from - source->data), bytes);
    pthread_mutex_unlock(&memory.lock);
}

/* ---- For tests ----------------------------------------------------------------------------- */

void *fake_cuda_allocate(size_t bytes) {
    return fake_memory_allocate(bytes, 1);
}

void fake_cuda_free(void *data) {
    fake_memory_free(data, "fake_cuda_free");
}

int fake_cuda_check_range(const void *data, size_t bytes, const char *what) {
    return fake_access((fake_rows){data, 1, (int64_t)bytes, 0}, 0, what);
}

size_t fake_cuda_bytes_touched(const void *data) {
    pthread_mutex_lock(&memory.lock);
    const allocation *a = find_holder(data, 1);
    size_t touched = a ? a->touched : 0;
    pthread_mutex_unlock(&memory.lock);
    return touched;
}

int fake_cuda_written(const void *data, size_t bytes) {
    pthread_mutex_lock(&memory.lock);
    const allocation *a = find_holder(data, bytes);
    int written = a && all_written(a, (size_t)((const char *)data - a->data), bytes);
    pthread_mutex_unlock(&memory.lock);
    return written;
}

int fake_cuda_partly_written(const void *data, size_t bytes) {
    pthread_mutex_lock(&memory.lock);
    const allocation *a = find_holder(data, bytes);
    const size_t offset = a ? (size_t)((const char *)data - a->data) : 0;
    int written = a && memchr(a->written + offset, 1, bytes) != NULL;
    pthread_mutex_unlock(&memory.lock);
    return written;
}

void fake_cuda_mark_written(const void *data, size_t bytes) {
    pthread_mutex_lock(&memory.lock);
    allocation *a = find_holder(data, bytes);
    if (a)
        memset(a->written + ((const char *)data - a->data), 1, bytes);
    pthread_mutex_unlock(&memory.lock);
}

void fake_cuda_forget(const void *data) {
    pthread_mutex_lock(&memory.lock);
    allocation *a = find_holder(data, 1);
    if (a) {
        memset(a->written, 0, a->bytes);
        a->touched = 0;
    }
    pthread_mutex_unlock(&memory.lock);
}
