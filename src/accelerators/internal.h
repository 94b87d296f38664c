/* accelerators/internal.h: the built-in accelerators and what they share. */
#ifndef FABRIC_ACCELERATORS_INTERNAL_H
#define FABRIC_ACCELERATORS_INTERNAL_H

#include "base/error.h"
#include <cfabric/plugin/accelerator.h>

extern const fabric_accelerator_entry fabric__accelerator_cpu;
extern const fabric_accelerator_entry fabric__accelerator_cuda;
extern const fabric_accelerator_entry fabric__accelerator_mps;
extern const fabric_accelerator_entry fabric__accelerator_tpu;

/* Reads a choice of GPUs ("3", "-1", "0,2", "2,") among `available` ones, numbered from 0. Writes at most `capacity` numbers to
 * `out` and returns how many were chosen: 0 for "0", "" and "[]"; a negative status with an error raised when the text is no such
 * choice, names a GPU twice or one that is not there. `class_name` begins the messages. */
int fabric__parse_gpu_ids(const char *text, int available, const char *class_name, int *out, size_t capacity);

/* How many there are. Tests put other numbers in place of the real ones; -1 ends that. */
int fabric__cuda_count(void);
int fabric__mps_count(void);
void fabric__accelerators_fake(int cuda, int mps);

#endif
