/* environments/internal.h: the built-in tables and what the environments share. No libtorch here. */
#ifndef FABRIC_ENVIRONMENTS_INTERNAL_H
#define FABRIC_ENVIRONMENTS_INTERNAL_H

#include "base/error.h"
#include <cfabric/plugin/environment.h>

extern const fabric_environment_ops fabric__environment_torchelastic;
extern const fabric_environment_ops fabric__environment_slurm;
extern const fabric_environment_ops fabric__environment_lsf;
extern const fabric_environment_ops fabric__environment_mpi;
extern const fabric_environment_ops fabric__environment_lightning;
extern const fabric_environment_ops fabric__environment_kubeflow;

/* The table and state of a live environment; NULL with an error (naming `function`) otherwise or while an error is pending. */
const fabric_environment_ops *fabric__environment_ops_of(fabric_environment *environment, const char *function, void **self);

/* A whole number between min and max, blanks around it allowed. */
bool fabric__parse_int(const char *text, long min, long max, int *value);
/* An environment variable as a number; `hint` (may be NULL) ends the message. -1: unset is a KeyError naming the variable and the
 * environment, anything but a number >= 0 a ValueError showing it. */
int fabric__environment_int(const char *variable, const char *environment, const char *hint);
/* The same, but `fallback` when unset. */
int fabric__environment_int_or(const char *variable, const char *environment, int fallback);
/* A port number from a variable that is set; -1 with a ValueError. */
int fabric__environment_port(const char *variable);
/* This machine's name. */
th_status fabric__environment_hostname(char *buffer, size_t size);
/* Tests: pretends another host name; NULL ends that. */
void fabric__environment_fake_hostname(const char *name);

/* Has an MPI launcher made this process? */
bool fabric__mpi_launched(void);

/* The first host of a SLURM node list, brackets resolved, into `out` (cut at its size). */
void fabric__slurm_root_node(const char *nodelist, char *out, size_t size);

#endif
