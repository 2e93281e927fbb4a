// A stand-in for the driver's library, for tests. The file named by NVML_SIM says
// what GPUs there are, a line each:
//   driver VERSION
//   fail CODE                 nvmlInit_v2 answers CODE
//   hang                      nvmlDeviceGetCount_v2 never returns
//   gpu UUID BUSID SERIAL NAME LINKS ACTIVE SWITCH TLIMIT [lost]
// LINKS of -1: the GPU has no NVLink; SWITCH is the bus id at the other ends.
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { SUCCESS = 0, INVALID_ARGUMENT = 2, NOT_SUPPORTED = 3, GPU_IS_LOST = 15 };

typedef struct {
	char uuid[96], bus[32], serial[30], name[96], peer[32], lost[8];
	int links, active, tlimit;
} gpu_t;

// As in the driver's header: a struct that holds a pointer, passed by value.
typedef struct {
	gpu_t *gpu;
} device_t;

typedef struct {
	char legacy[16];
	unsigned int domain, bus, device, pci, subsystem;
	char id[32];
} pci_t;

typedef struct {
	unsigned int field, scope;
	long long timestamp, latency;
	unsigned int type, ret;
	union {
		int i;
		unsigned int u;
		double d;
	} value;
} field_t;

static gpu_t gpus[64];
static int count, hang;
static char driver[80];

int nvmlInit_v2(void) {
	char line[512];
	const char *path = getenv("NVML_SIM");
	FILE *f = path ? fopen(path, "r") : NULL;
	int failure = 0;
	if (f == NULL)
		return 999;
	count = hang = 0;
	driver[0] = 0;
	while (fgets(line, sizeof line, f) != NULL) {
		gpu_t g;
		memset(&g, 0, sizeof g);
		sscanf(line, "driver %79s", driver);
		sscanf(line, "fail %d", &failure);
		if (strncmp(line, "hang", 4) == 0)
			hang = 1;
		if (sscanf(line, "gpu %95s %31s %29s %95s %d %d %31s %d %7s", g.uuid, g.bus, g.serial, g.name, &g.links, &g.active, g.peer, &g.tlimit,
			   g.lost) >= 8 && count < 64)
			gpus[count++] = g;
	}
	fclose(f);
	return failure;
}

int nvmlShutdown(void) { return SUCCESS; }

int nvmlSystemGetDriverVersion(char *out, unsigned int n) {
	snprintf(out, n, "%s", driver);
	return SUCCESS;
}

int nvmlDeviceGetCount_v2(unsigned int *out) {
	while (hang)
		sleep(1);
	*out = count;
	return SUCCESS;
}

int nvmlDeviceGetHandleByIndex_v2(unsigned int i, device_t *out) {
	if (i >= (unsigned int)count)
		return INVALID_ARGUMENT;
	if (gpus[i].lost[0])
		return GPU_IS_LOST;
	out->gpu = &gpus[i];
	return SUCCESS;
}

int nvmlDeviceGetUUID(device_t d, char *out, unsigned int n) {
	snprintf(out, n, "%s", d.gpu->uuid);
	return SUCCESS;
}

int nvmlDeviceGetSerial(device_t d, char *out, unsigned int n) {
	snprintf(out, n, "%s", d.gpu->serial);
	return SUCCESS;
}

int nvmlDeviceGetName(device_t d, char *out, unsigned int n) {
	snprintf(out, n, "%s", d.gpu->name);
	return SUCCESS;
}

int nvmlDeviceGetPciInfo_v3(device_t d, pci_t *out) {
	memset(out, 0, sizeof *out);
	snprintf(out->id, sizeof out->id, "%s", d.gpu->bus);
	return SUCCESS;
}

int nvmlDeviceGetNvLinkState(device_t d, unsigned int link, int *out) {
	if (d.gpu->links < 0)
		return NOT_SUPPORTED;
	if ((int)link >= d.gpu->links)
		return INVALID_ARGUMENT;
	*out = (int)link < d.gpu->active;
	return SUCCESS;
}

#ifndef FEW
int nvmlDeviceGetNvLinkRemotePciInfo_v2(device_t d, unsigned int link, pci_t *out) {
	(void)link;
	memset(out, 0, sizeof *out);
	snprintf(out->id, sizeof out->id, "%s", d.gpu->peer);
	return SUCCESS;
}

int nvmlDeviceGetNvLinkRemoteDeviceType(device_t d, unsigned int link, int *out) {
	(void)d;
	(void)link;
	*out = 2; // a switch
	return SUCCESS;
}

int nvmlDeviceGetFieldValues(device_t d, int n, field_t *f) {
	for (int i = 0; i < n; i++) {
		f[i].ret = SUCCESS;
		switch (f[i].field) {
		case 146: // the number of the link at the other end
			f[i].type = 1;
			f[i].value.u = 30 + f[i].scope;
			break;
		case 194: // the margin at which it slows down
			f[i].type = 5;
			f[i].value.i = d.gpu->tlimit;
			break;
		default:
			f[i].ret = NOT_SUPPORTED;
		}
	}
	return SUCCESS;
}
#endif
