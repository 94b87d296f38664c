/* fabric/doctor.h: what `fabric doctor` looks up in the library. Exported, but no part of the API. */
#ifndef FABRIC_FABRIC_DOCTOR_H
#define FABRIC_FABRIC_DOCTOR_H

#include <cfabric/base.h>
#include <stdio.h>

/* Writes which libtorch is loaded, BLAS, threads, devices and backends. 0, or 1 when the engine does not work. */
FABRIC_API int fabric_doctor_report(FILE *out);

#endif
