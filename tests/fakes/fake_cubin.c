/* fake_cubin.c - reading a cubin: a 64-bit ELF file for NVIDIA's machine 190.
 *
 * A kernel is a global function with a section .nv.info.<name>, a list of attributes: a byte of
 * format, a byte that names it, then two bytes of value or, in format 4, two bytes of size and as
 * many of value (`cuobjdump -elf` shows them by name).
 */
#include "fake_cubin.h"

#include "fake_state.h"

#include <elf.h>
#include <stdio.h>
#include <string.h>

#define MACHINE_CUDA 190
#define FORMAT_SIZED 4
#define ATTRIBUTE_MAX_THREADS 0x05
#define ATTRIBUTE_PARAMETER_BYTES 0x19

typedef struct elf_file {
    const char *image;
    const Elf64_Ehdr *header;
    const Elf64_Shdr *sections;
} elf_file;

static const char *section_name(const elf_file *f, const Elf64_Shdr *section) {
    return f->image + f->sections[f->header->e_shstrndx].sh_offset + section->sh_name;
}

/* The section called prefix + name, or NULL. */
static const Elf64_Shdr *find_section(const elf_file *f, const char *prefix, const char *name) {
    char wanted[256];
    snprintf(wanted, sizeof wanted, "%s%s", prefix, name);
    for (int i = 0; i < f->header->e_shnum; ++i)
        if (strcmp(section_name(f, &f->sections[i]), wanted) == 0)
            return &f->sections[i];
    return NULL;
}

static void read_attributes(fake_entry *entry, const unsigned char *at, const unsigned char *end) {
    while (at + 4 <= end) {
        const int format = at[0], name = at[1], value = at[2] | at[3] << 8;
        at += 4;
        if (name == ATTRIBUTE_PARAMETER_BYTES)
            entry->parameter_bytes = value;
        if (format != FORMAT_SIZED)
            continue;
        uint32_t block[3] = {0};
        if (name == ATTRIBUTE_MAX_THREADS && value == (int)sizeof block && at + value <= end) {
            memcpy(block, at, sizeof block);
            entry->max_threads = (int)(block[0] * block[1] * block[2]);
        }
        at += value;
    }
}

static void read_entry(fake_cubin *cubin, const elf_file *f, const char *name) {
    const Elf64_Shdr *info = find_section(f, ".nv.info.", name);
    const Elf64_Shdr *shared = find_section(f, ".nv.shared.", name);
    if (!info || cubin->entry_count == FAKE_MOST_ENTRIES)
        return;
    fake_entry *entry = &cubin->entries[cubin->entry_count++];
    *entry = (fake_entry){name, 0, 0, shared ? (int)shared->sh_size : 0};
    const unsigned char *from = (const unsigned char *)f->image + info->sh_offset;
    read_attributes(entry, from, from + info->sh_size);
}

static void read_symbols(fake_cubin *cubin, const elf_file *f, const Elf64_Shdr *table) {
    const Elf64_Sym *symbols = (const void *)(f->image + table->sh_offset);
    const char *names = f->image + f->sections[table->sh_link].sh_offset;
    for (size_t i = 0; i < table->sh_size / sizeof *symbols; ++i)
        if (ELF64_ST_TYPE(symbols[i].st_info) == STT_FUNC &&
            ELF64_ST_BIND(symbols[i].st_info) == STB_GLOBAL)
            read_entry(cubin, f, names + symbols[i].st_name);
}

/* ABI version 8, of CUDA 13, moved the arch one byte up in the flags. */
static int arch_of(const Elf64_Ehdr *header) {
    const int shift = header->e_ident[EI_ABIVERSION] >= 8 ? 8 : 0;
    return (int)(header->e_flags >> shift & 0xff);
}

static size_t furthest(size_t end, size_t offset, size_t bytes) {
    return offset + bytes > end ? offset + bytes : end;
}

/* To the end of the part that lies last: sections, or the tables that list them. */
static size_t image_bytes(const elf_file *f) {
    const Elf64_Ehdr *h = f->header;
    size_t end = furthest(sizeof *h, h->e_shoff, (size_t)h->e_shnum * h->e_shentsize);
    end = furthest(end, h->e_phoff, (size_t)h->e_phnum * h->e_phentsize);
    for (int i = 0; i < h->e_shnum; ++i)
        if (f->sections[i].sh_type != SHT_NOBITS)
            end = furthest(end, f->sections[i].sh_offset, f->sections[i].sh_size);
    return end;
}

int fake_cubin_read(fake_cubin *cubin, const void *image) {
    const Elf64_Ehdr *header = image;
    const elf_file f = {image, header, (const void *)((const char *)image + header->e_shoff)};
    memset(cubin, 0, sizeof *cubin);
    if (memcmp(image, ELFMAG, SELFMAG) != 0 || header->e_ident[EI_CLASS] != ELFCLASS64 ||
        header->e_machine != MACHINE_CUDA) {
        fake_violation("an image to load is no cubin");
        return 0;
    }
    cubin->arch = arch_of(header);
    cubin->bytes = image_bytes(&f);
    for (int i = 0; i < header->e_shnum; ++i)
        if (f.sections[i].sh_type == SHT_SYMTAB)
            read_symbols(cubin, &f, &f.sections[i]);
    return 1;
}
