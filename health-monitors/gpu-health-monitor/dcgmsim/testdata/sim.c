/*
 * A simulated libdcgm.so.4 for tests. The host engine that it talks to is a folder
 * of files (DCGMSIM_DIR), which the test writes by renaming and this library reads
 * at each call, so that the engine outlives its clients:
 *
 *   engine     number of the engine's life; missing: no engine runs
 *   gpus       id status uuid pci
 *   switches   ids of the NVSwitches; missing: their module is not loaded
 *   instances  kind id gpu                       MIG instances and their GPUs
 *   incidents  latched system health code kind id text
 *   fields     kind id field value               the newest values
 *   frozen     time in us at which the stamps of values stop; missing: they advance
 *   unreadable ids of the GPUs none of whose values can be read
 *   stamps     kind id field time                the stamps of values, where they are not those of the call
 *   refused    call kind id                      what the engine refuses for an entity: GroupAddEntity, or
 *                                                WatchFields or GetValuesSince of a group that holds it
 *   samples    kind id field value time after    time in us; told from "after" on
 *   xids       gpu xid time                      in us; what policies see (policy.c)
 *   hang       the call that does not return, or *
 *   crash      the call that ends the process
 *   unwatched  present: nobody's health watches are left
 *   deadinit   present: a connection succeeds and is dead
 *   calls      every call, appended: pid name
 *
 * It behaves as a real DCGM 4.6.0 was measured to, where that surprises: the package
 * documentation (doc.go) has the table.
 */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/time.h>
#include <unistd.h>

#include "dcgm_agent.h"
#include "dcgm_structs.h"

#define MAX_GROUPS 64
#define MAX_MEMBERS 256
#define MAX_LINE 2048

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static long connected = -1; /* the life of the engine that the connection is to */

static struct {
	int used;
	dcgmHealthSystems_t systems;
	int count;
	dcgmGroupEntityPair_t members[MAX_MEMBERS];
} groups[MAX_GROUPS];

static struct {
	int used;
	char name[256];
	int count;
	unsigned short ids[64];
} fieldGroups[MAX_GROUPS];

static FILE *file(const char *name, const char *mode)
{
	char path[4096];
	const char *dir = getenv("DCGMSIM_DIR");
	snprintf(path, sizeof path, "%s/%s", dir ? dir : "/nonexistent", name);
	return fopen(path, mode);
}

/* word reads the first word of a file; 0 without one. */
static int word(const char *name, char *to, size_t size)
{
	FILE *f = file(name, "r");
	to[0] = 0;
	if (!f)
		return 0;
	if (!fgets(to, (int)size, f))
		to[0] = 0;
	to[strcspn(to, " \n")] = 0;
	fclose(f);
	return 1;
}

static long engine(void)
{
	char s[64];
	return word("engine", s, sizeof s) ? atol(s) : -1;
}

static long long now(void)
{
	struct timeval tv;
	gettimeofday(&tv, NULL);
	return (long long)tv.tv_sec * 1000000 + tv.tv_usec;
}

/* enter books a call, and hangs or ends as the test wants. */
static void enter(const char *name)
{
	char s[64], line[128];
	FILE *f = file("calls", "a");
	if (f) {
		int n = snprintf(line, sizeof line, "%d %s\n", (int)getpid(), name);
		setvbuf(f, NULL, _IONBF, 0);
		fwrite(line, 1, (size_t)n, f);
		fclose(f);
	}
	while (word("hang", s, sizeof s) && (!strcmp(s, name) || !strcmp(s, "*")))
		usleep(10000);
	if (word("crash", s, sizeof s) && !strcmp(s, name)) {
		fprintf(stderr, "symbol lookup error: undefined symbol: %s\n", name);
		_exit(127);
	}
}

/* call books a call and says whether the connection still stands. */
static dcgmReturn_t call(const char *name)
{
	enter(name);
	return connected >= 0 && engine() == connected ? DCGM_ST_OK : DCGM_ST_CONNECTION_NOT_VALID;
}

#define CALL(name)                     \
	do {                           \
		dcgmReturn_t r = call(name); \
		if (r != DCGM_ST_OK)   \
			return r;      \
	} while (0)

const char *errorString(dcgmReturn_t r)
{
	switch (r) {
	case DCGM_ST_OK: return "Success";
	case DCGM_ST_BADPARAM: return "Bad parameter passed to function";
	case DCGM_ST_GPU_IS_LOST: return "GPU is lost";
	case DCGM_ST_NOT_SUPPORTED: return "This request is not supported";
	case DCGM_ST_NOT_CONFIGURED: return "Setting not configured";
	case DCGM_ST_VER_MISMATCH: return "API version mismatch";
	case DCGM_ST_NO_DATA: return "No data is available";
	case DCGM_ST_DUPLICATE_KEY: return "Duplicate Key passed to function";
	case DCGM_ST_MODULE_NOT_LOADED: return "This request is serviced by a module of DCGM that is not currently loaded";
	case DCGM_ST_CONNECTION_NOT_VALID: return "Host engine connection invalid/disconnected";
	default: return "Generic unspecified error";
	}
}

dcgmReturn_t dcgmInit(void) { return DCGM_ST_OK; }
dcgmReturn_t dcgmShutdown(void) { return DCGM_ST_OK; }

static dcgmReturn_t attach(const char *name, dcgmHandle_t *h)
{
	const char *ms = getenv("DCGMSIM_CONNECT_MS");
	long waited = 0, most = ms ? atol(ms) : 100;
	char s[8];
	enter(name);
	*h = 1;
	if (word("deadinit", s, sizeof s)) { /* a failed login is swallowed */
		connected = -1;
		return DCGM_ST_OK;
	}
	for (; engine() < 0; waited += 10) {
		if (waited >= most)
			return DCGM_ST_CONNECTION_NOT_VALID;
		usleep(10000);
	}
	connected = engine();
	return DCGM_ST_OK;
}

dcgmReturn_t dcgmConnect_v2(const char *address, dcgmConnectV2Params_t *p, dcgmHandle_t *h)
{
	(void)address;
	return p->version == dcgmConnectV2Params_version ? attach("Connect", h) : DCGM_ST_VER_MISMATCH;
}

dcgmReturn_t dcgmStartEmbedded(dcgmOperationMode_t mode, dcgmHandle_t *h)
{
	(void)mode;
	return attach("StartEmbedded", h);
}

dcgmReturn_t dcgmStopEmbedded(dcgmHandle_t h)
{
	(void)h;
	connected = -1;
	return DCGM_ST_OK;
}

dcgmReturn_t dcgmDisconnect(dcgmHandle_t h)
{
	(void)h;
	enter("Disconnect");
	connected = -1;
	memset(groups, 0, sizeof groups); /* a connection's groups end with it, and their numbers begin anew */
	return DCGM_ST_OK;
}

dcgmReturn_t dcgmHostengineVersionInfo(dcgmHandle_t h, dcgmVersionInfo_t *v)
{
	(void)h;
	if (v->version != dcgmVersionInfo_version)
		return DCGM_ST_VER_MISMATCH;
	CALL("HostengineVersionInfo");
	snprintf(v->rawBuildInfoString, sizeof v->rawBuildInfoString, "version:4.6.0;arch:x86_64;buildid:simulated");
	return DCGM_ST_OK;
}

/* refused tells whether the engine refuses something for an entity. */
static int refused(const char *what, unsigned int kind, unsigned int id)
{
	char line[MAX_LINE], name[64];
	unsigned int k, i;
	int found = 0;
	FILE *f = file("refused", "r");
	while (f && fgets(line, sizeof line, f))
		if (sscanf(line, "%63s %u %u", name, &k, &i) == 3 && !strcmp(name, what) && k == kind && i == id)
			found = 1;
	if (f)
		fclose(f);
	return found;
}

/* groupRefused tells whether the engine refuses something for one that a group holds. */
static int groupRefused(const char *what, dcgmGpuGrp_t g)
{
	for (int i = 0; g < MAX_GROUPS && i < groups[g].count; i++)
		if (refused(what, groups[g].members[i].entityGroupId, groups[g].members[i].entityId))
			return 1;
	return 0;
}

/* status of a GPU; -1 for one that the engine does not have. */
static int status(unsigned int gpu)
{
	char line[MAX_LINE];
	FILE *f = file("gpus", "r");
	unsigned int id;
	int s, found = -1;
	while (f && fgets(line, sizeof line, f))
		if (sscanf(line, "%u %d", &id, &s) == 2 && id == gpu)
			found = s;
	if (f)
		fclose(f);
	return found;
}

static int good(unsigned int gpu)
{
	int s = status(gpu);
	return s == DcgmEntityStatusOk || s == DcgmEntityStatusFake;
}

dcgmReturn_t dcgmGetEntityGroupEntities(dcgmHandle_t h, dcgm_field_entity_group_t kind, dcgm_field_eid_t *to, int *count, unsigned int flags)
{
	char line[MAX_LINE];
	unsigned int id;
	int n = 0;
	FILE *f;
	(void)h;
	(void)flags;
	CALL("GetEntityGroupEntities");
	if (kind == DCGM_FE_GPU) { /* a lost GPU stays in the list */
		f = file("gpus", "r");
		while (f && fgets(line, sizeof line, f))
			if (sscanf(line, "%u", &id) == 1 && n < *count)
				to[n++] = id;
		if (f)
			fclose(f);
	} else if (kind == DCGM_FE_SWITCH) {
		f = file("switches", "r");
		if (!f)
			return DCGM_ST_MODULE_NOT_LOADED;
		while (n < *count && fscanf(f, "%u", &id) == 1)
			to[n++] = id;
		fclose(f);
	}
	*count = n;
	return DCGM_ST_OK;
}

dcgmReturn_t dcgmGetGpuStatus(dcgmHandle_t h, unsigned int gpu, DcgmEntityStatus_t *to)
{
	int s;
	(void)h;
	CALL("GetGpuStatus");
	s = status(gpu);
	*to = s < 0 ? DcgmEntityStatusUnknown : (DcgmEntityStatus_t)s;
	return DCGM_ST_OK;
}

dcgmReturn_t dcgmGroupCreate(dcgmHandle_t h, dcgmGroupType_t type, const char *name, dcgmGpuGrp_t *to)
{
	(void)h;
	(void)type;
	(void)name; /* a name may be used twice */
	CALL("GroupCreate");
	pthread_mutex_lock(&lock);
	for (int i = 1; i < MAX_GROUPS; i++)
		if (!groups[i].used) {
			memset(&groups[i], 0, sizeof groups[i]);
			groups[i].used = 1;
			*to = (dcgmGpuGrp_t)i;
			pthread_mutex_unlock(&lock);
			return DCGM_ST_OK;
		}
	pthread_mutex_unlock(&lock);
	return DCGM_ST_GENERIC_ERROR;
}

dcgmReturn_t dcgmGroupDestroy(dcgmHandle_t h, dcgmGpuGrp_t g)
{
	(void)h;
	CALL("GroupDestroy");
	if (g < MAX_GROUPS)
		groups[g].used = 0;
	return DCGM_ST_OK;
}

dcgmReturn_t dcgmGroupAddEntity(dcgmHandle_t h, dcgmGpuGrp_t g, dcgm_field_entity_group_t kind, dcgm_field_eid_t id)
{
	(void)h;
	CALL("GroupAddEntity");
	if (g >= MAX_GROUPS || !groups[g].used)
		return DCGM_ST_NOT_CONFIGURED;
	if (groups[g].count == MAX_MEMBERS || refused("GroupAddEntity", kind, id))
		return DCGM_ST_BADPARAM;
	if (kind == DCGM_FE_GPU)
		switch (status(id)) { /* the list of entities has these GPUs all the same */
		case DcgmEntityStatusLost:
			return DCGM_ST_GPU_IS_LOST;
		case -1: /* unknown */
		case DcgmEntityStatusDisabled:
		case DcgmEntityStatusDetached:
			return DCGM_ST_BADPARAM;
		}
	for (int i = 0; i < groups[g].count; i++)
		if (groups[g].members[i].entityGroupId == kind && groups[g].members[i].entityId == id)
			return DCGM_ST_BADPARAM;
	groups[g].members[groups[g].count].entityGroupId = kind;
	groups[g].members[groups[g].count++].entityId = id;
	return DCGM_ST_OK;
}

dcgmReturn_t dcgmHealthSet(dcgmHandle_t h, dcgmGpuGrp_t g, dcgmHealthSystems_t systems)
{
	(void)h;
	CALL("HealthSet");
	if (g >= MAX_GROUPS || !groups[g].used)
		return DCGM_ST_NOT_CONFIGURED;
	groups[g].systems = systems;
	return DCGM_ST_OK;
}

static unsigned int watched(dcgmGpuGrp_t g)
{
	char s[8];
	return word("unwatched", s, sizeof s) ? 0 : (unsigned int)groups[g].systems;
}

dcgmReturn_t dcgmHealthGet(dcgmHandle_t h, dcgmGpuGrp_t g, dcgmHealthSystems_t *to)
{
	(void)h;
	CALL("HealthGet");
	if (g >= MAX_GROUPS || !groups[g].used)
		return DCGM_ST_NOT_CONFIGURED;
	*to = (dcgmHealthSystems_t)watched(g);
	return DCGM_ST_OK;
}

/* say writes the text of an incident, which is not to be trusted. */
static void say(dcgmIncidentInfo_t *x, const char *given)
{
	if (x->error.code == 80) /* a missing argument: another GPU each time */
		snprintf(x->error.msg, sizeof x->error.msg, "GPU %d had uncorrectable memory errors and row remapping failed.", rand());
	else if (x->error.code == 120)
		snprintf(x->error.msg, sizeof x->error.msg, "GPU %%d has fallen off the bus.");
	else
		snprintf(x->error.msg, sizeof x->error.msg, "%s", given);
}

static int member(dcgmGpuGrp_t g, dcgmGroupEntityPair_t e)
{
	if (e.entityGroupId != DCGM_FE_GPU && e.entityGroupId != DCGM_FE_SWITCH)
		return 1;
	for (int i = 0; i < groups[g].count; i++)
		if (groups[g].members[i].entityGroupId == e.entityGroupId && groups[g].members[i].entityId == e.entityId)
			return 1;
	return 0;
}

static void newest(dcgmFieldValue_v2 *v, dcgmGroupEntityPair_t e, unsigned short field);

/* judged is the field from which the health check makes an error; 0 where the tests need none. */
static unsigned short judged(unsigned int code)
{
	switch (code) {
	case 3: return 202;
	case 4: return 311;
	case 6: return 392;
	case 7: return 391;
	case 10: return 241;
	case 12: return 240;
	case 13: return 419;
	case 15: return DCGM_FI_DEV_SXID_FATAL_ERROR;
	case 16: return DCGM_FI_DEV_SXID_NON_FATAL_ERROR;
	case 33: return 174;
	case 52: return 1507;
	case 70: return 409;
	case 71: return 429;
	case 80: return 395;
	case 125: case 126: case 127: case 128: return 1523;
	case 132: return 393;
	default: return 0;
	}
}

/*
 * backed tells whether the health check has a sample by which to show an error: it
 * drops one whose newest sample is blank or older than a minute.
 */
static int backed(dcgmGroupEntityPair_t e, unsigned int code)
{
	static dcgmFieldValue_v2 v;
	unsigned short field = judged(code);
	if (!field)
		return 1;
	newest(&v, e, field);
	if (e.entityGroupId == DCGM_FE_SWITCH && v.value.i64 <= 0)
		return 0;
	return v.status == DCGM_ST_OK && v.value.i64 < DCGM_INT64_BLANK && now() - v.ts <= 60000000;
}

/* powerless warns of a GPU whose power cannot be read: of that, the newest sample counts whatever its age. */
static void powerless(dcgmHealthResponse_t *to, dcgmGroupEntityPair_t e)
{
	static dcgmFieldValue_v2 v;
	dcgmIncidentInfo_t *x = &to->incidents[to->incidentCount];
	if (e.entityGroupId != DCGM_FE_GPU || !good(e.entityId) || to->incidentCount >= DCGM_HEALTH_WATCH_MAX_INCIDENTS_V2)
		return;
	newest(&v, e, DCGM_FI_DEV_BOARD_POWER_WATTS);
	if (v.status != DCGM_ST_OK || v.value.dbl < DCGM_FP64_BLANK)
		return;
	memset(x, 0, sizeof *x);
	x->system = DCGM_HEALTH_WATCH_POWER;
	x->health = DCGM_HEALTH_RESULT_WARN;
	x->error.code = 11;
	x->entityInfo = e;
	snprintf(x->error.msg, sizeof x->error.msg, "Detected GPU %u has unreadable power usage", e.entityId);
	if (to->overallHealth < DCGM_HEALTH_RESULT_WARN)
		to->overallHealth = DCGM_HEALTH_RESULT_WARN;
	to->incidentCount++;
}

dcgmReturn_t dcgmHealthCheck(dcgmHandle_t h, dcgmGpuGrp_t g, dcgmHealthResponse_t *to)
{
	char line[MAX_LINE];
	FILE *f;
	(void)h;
	if (to->version != dcgmHealthResponse_version)
		return DCGM_ST_VER_MISMATCH;
	CALL("HealthCheck");
	if (g >= MAX_GROUPS || !groups[g].used)
		return DCGM_ST_NOT_CONFIGURED;
	to->overallHealth = DCGM_HEALTH_RESULT_PASS;
	to->incidentCount = 0;
	if (!watched(g)) /* passes, and is no error */
		return DCGM_ST_OK;
	f = file("incidents", "r");
	while (f && fgets(line, sizeof line, f) && to->incidentCount < DCGM_HEALTH_WATCH_MAX_INCIDENTS_V2) {
		dcgmIncidentInfo_t *x = &to->incidents[to->incidentCount];
		unsigned int latched, system, health, code, kind, id;
		int text = 0;
		if (sscanf(line, "%u %u %u %u %u %u %n", &latched, &system, &health, &code, &kind, &id, &text) < 6)
			continue;
		x->system = (dcgmHealthSystems_t)system;
		x->health = (dcgmHealthWatchResults_t)health;
		x->error.code = code;
		x->entityInfo.entityGroupId = (dcgm_field_entity_group_t)kind;
		x->entityInfo.entityId = id;
		if (!member(g, x->entityInfo) || (kind == DCGM_FE_GPU && !good(id)))
			continue; /* a lost GPU has no incidents */
		if (!latched && (kind == DCGM_FE_GPU || kind == DCGM_FE_SWITCH) && !backed(x->entityInfo, code))
			continue;
		line[strcspn(line, "\n")] = 0;
		say(x, line + text);
		if ((unsigned int)to->overallHealth < health)
			to->overallHealth = x->health;
		to->incidentCount++;
	}
	if (f)
		fclose(f);
	for (int i = 0; i < groups[g].count; i++)
		powerless(to, groups[g].members[i]);
	return DCGM_ST_OK;
}

dcgmReturn_t dcgmFieldGroupCreate(dcgmHandle_t h, int n, const unsigned short *ids, const char *name, dcgmFieldGrp_t *to)
{
	(void)h;
	CALL("FieldGroupCreate");
	for (int i = 1; i < MAX_GROUPS; i++)
		if (fieldGroups[i].used && !strcmp(fieldGroups[i].name, name))
			return DCGM_ST_DUPLICATE_KEY;
	for (int i = 1; i < MAX_GROUPS && n <= 64; i++)
		if (!fieldGroups[i].used) {
			fieldGroups[i].used = 1;
			fieldGroups[i].count = n;
			memcpy(fieldGroups[i].ids, ids, (size_t)n * sizeof *ids);
			snprintf(fieldGroups[i].name, sizeof fieldGroups[i].name, "%s", name);
			*to = (dcgmFieldGrp_t)i;
			return DCGM_ST_OK;
		}
	return DCGM_ST_GENERIC_ERROR;
}

dcgmReturn_t dcgmFieldGroupDestroy(dcgmHandle_t h, dcgmFieldGrp_t g)
{
	(void)h;
	CALL("FieldGroupDestroy");
	if (g < MAX_GROUPS)
		fieldGroups[g].used = 0;
	return DCGM_ST_OK;
}

dcgmReturn_t dcgmWatchFields(dcgmHandle_t h, dcgmGpuGrp_t g, dcgmFieldGrp_t fg, long long every, double age, int samples)
{
	(void)h;
	(void)fg;
	(void)every;
	(void)age;
	(void)samples;
	CALL("WatchFields");
	return groupRefused("WatchFields", g) ? DCGM_ST_NOT_SUPPORTED : DCGM_ST_OK;
}

dcgmReturn_t dcgmUpdateAllFields(dcgmHandle_t h, int wait)
{
	(void)h;
	(void)wait;
	CALL("UpdateAllFields");
	return DCGM_ST_OK;
}

static int wants(dcgmFieldGrp_t g, unsigned int field)
{
	for (int i = 0; g < MAX_GROUPS && i < fieldGroups[g].count; i++)
		if (fieldGroups[g].ids[i] == field)
			return 1;
	return 0;
}

static void blank(dcgmFieldValue_v1 *v, unsigned int field)
{
	memset(v, 0, sizeof *v);
	v->version = dcgmFieldValue_version1;
	v->fieldId = (unsigned short)field;
	v->fieldType = DCGM_FT_INT64;
	v->value.i64 = DCGM_INT64_BLANK;
}

dcgmReturn_t dcgmGetValuesSince_v2(dcgmHandle_t h, dcgmGpuGrp_t g, dcgmFieldGrp_t fg, long long since, long long *next,
				   dcgmFieldValueEntityEnumeration_f tell, void *user)
{
	char line[MAX_LINE];
	dcgmFieldValue_v1 v;
	long long asked = now();
	(void)h;
	CALL("GetValuesSince");
	if (g >= MAX_GROUPS || !groups[g].used)
		return DCGM_ST_NOT_CONFIGURED;
	if (groupRefused("GetValuesSince", g))
		return DCGM_ST_NOT_SUPPORTED;
	for (int i = 0; i < groups[g].count; i++) {
		dcgmGroupEntityPair_t e = groups[g].members[i];
		int told = 0;
		FILE *f = file("samples", "r");
		while (f && fgets(line, sizeof line, f)) {
			unsigned int kind, id, field;
			long long value, at, after;
			if (sscanf(line, "%u %u %u %lld %lld %lld", &kind, &id, &field, &value, &at, &after) != 6)
				continue;
			if (kind != (unsigned int)e.entityGroupId || id != e.entityId || !wants(fg, field) || at < since || after > asked)
				continue;
			blank(&v, field);
			v.value.i64 = value;
			v.ts = at;
			tell(e.entityGroupId, e.entityId, &v, 1, user);
			told = 1;
		}
		if (f)
			fclose(f);
		if (!told) { /* a placeholder */
			blank(&v, fieldGroups[fg].ids[0]);
			v.status = DCGM_ST_NO_DATA;
			tell(e.entityGroupId, e.entityId, &v, 1, user);
		}
	}
	*next = asked + 1;
	return DCGM_ST_OK;
}

/* named fills in what the list of GPUs tells; 0 if it does not. */
static int named(unsigned int gpu, unsigned int field, char *to, size_t size)
{
	char line[MAX_LINE], uuid[256], pci[256];
	unsigned int id;
	int s, found = 0;
	FILE *f = file("gpus", "r");
	while (f && fgets(line, sizeof line, f))
		if (sscanf(line, "%u %d %255s %255s", &id, &s, uuid, pci) == 4 && id == gpu) {
			snprintf(to, size, "%s", !good(gpu) ? "<<<NULL>>>" : field == DCGM_FI_DEV_GPU_UUID ? uuid : pci);
			found = 1;
		}
	if (f)
		fclose(f);
	return found;
}

/* unreadable tells whether the driver answers for no value of a GPU. */
static int unreadable(unsigned int gpu)
{
	unsigned int id;
	int found = 0;
	FILE *f = file("unreadable", "r");
	while (f && fscanf(f, "%u", &id) == 1)
		found = found || id == gpu;
	if (f)
		fclose(f);
	return found;
}

/*
 * stamp is the time of the newest sample of a value: that of the call, but for values
 * with a stamp of their own. All stand still while the driver hangs.
 */
static long long stamp(dcgmGroupEntityPair_t e, unsigned short field)
{
	char s[64], line[MAX_LINE];
	unsigned int kind, id, number;
	long long time, at = word("frozen", s, sizeof s) ? atoll(s) : now();
	FILE *f = file("stamps", "r");
	while (f && fgets(line, sizeof line, f))
		if (sscanf(line, "%u %u %u %lld", &kind, &id, &number, &time) == 4 && kind == (unsigned int)e.entityGroupId &&
		    id == e.entityId && number == field)
			at = time;
	if (f)
		fclose(f);
	return at;
}

/* usual is the value of a field that the test has not set, on a GPU that is well; 0 without one. */
static int usual(unsigned short field, dcgmFieldValue_v2 *v)
{
	switch (field) {
	case DCGM_FI_DEV_BOARD_POWER_WATTS:
		v->fieldType = DCGM_FT_DOUBLE;
		v->value.dbl = 100;
		return 1;
	case DCGM_FI_DEV_INFOROM_VALID:
		v->value.i64 = 1;
		return 1;
	case DCGM_FI_DEV_NVSWITCH_RESET_REQUIRED:
	case 174: case 202: case 240: case 241: case 311: case 390: case 391: case 392: case 393: case 395: case 409: case 419: case 429:
	case 439: case 1507: case 1523:
		v->value.i64 = 0;
		return 1;
	default:
		return 0;
	}
}

static void newest(dcgmFieldValue_v2 *v, dcgmGroupEntityPair_t e, unsigned short field)
{
	char line[MAX_LINE];
	FILE *f;
	int readable = e.entityGroupId == DCGM_FE_SWITCH || (good(e.entityId) && !unreadable(e.entityId));
	memset(v, 0, sizeof *v);
	v->version = dcgmFieldValue_version2;
	v->entityGroupId = e.entityGroupId;
	v->entityId = e.entityId;
	v->fieldId = field;
	v->fieldType = DCGM_FT_INT64;
	v->status = DCGM_ST_NO_DATA;
	v->value.i64 = DCGM_INT64_BLANK;
	if (e.entityGroupId != DCGM_FE_GPU && e.entityGroupId != DCGM_FE_SWITCH)
		return;
	v->ts = stamp(e, field);
	if (e.entityGroupId == DCGM_FE_GPU && (field == DCGM_FI_DEV_GPU_UUID || field == DCGM_FI_DEV_PCI_BUS_ID)) {
		v->fieldType = DCGM_FT_STRING;
		v->status = named(e.entityId, field, v->value.str, sizeof v->value.str) ? DCGM_ST_OK : DCGM_ST_NO_DATA;
		if (!readable)
			snprintf(v->value.str, sizeof v->value.str, "<<<NULL>>>");
		return;
	}
	/* without an error of a switch, there is no sample of one */
	if ((e.entityGroupId == DCGM_FE_GPU) != (field == DCGM_FI_DEV_NVSWITCH_RESET_REQUIRED) && usual(field, v))
		v->status = DCGM_ST_OK;
	f = file("fields", "r");
	while (f && fgets(line, sizeof line, f)) {
		unsigned int kind, id, number;
		long long value;
		if (sscanf(line, "%u %u %u %lld", &kind, &id, &number, &value) != 4)
			continue;
		if (kind != (unsigned int)e.entityGroupId || id != e.entityId || number != field)
			continue;
		v->status = DCGM_ST_OK; /* also where the value is blank */
		v->value.i64 = value;
		if (v->fieldType == DCGM_FT_DOUBLE)
			v->value.dbl = value >= DCGM_INT64_BLANK ? DCGM_FP64_BLANK : (double)value;
	}
	if (f)
		fclose(f);
	if (!readable && v->fieldType == DCGM_FT_DOUBLE)
		v->value.dbl = DCGM_FP64_BLANK;
	else if (!readable)
		v->value.i64 = DCGM_INT64_BLANK;
}

dcgmReturn_t dcgmEntitiesGetLatestValues(dcgmHandle_t h, dcgmGroupEntityPair_t entities[], unsigned int n, unsigned short fields[],
					 unsigned int m, unsigned int flags, dcgmFieldValue_v2 values[])
{
	(void)h;
	(void)flags;
	CALL("EntitiesGetLatestValues");
	for (unsigned int i = 0; i < n; i++)
		for (unsigned int j = 0; j < m; j++)
			newest(&values[i * m + j], entities[i], fields[j]);
	return DCGM_ST_OK;
}

dcgmReturn_t dcgmGetGpuInstanceHierarchy(dcgmHandle_t h, dcgmMigHierarchy_v2 *to)
{
	unsigned int kind, id, gpu;
	FILE *f;
	(void)h;
	if (to->version != dcgmMigHierarchy_version2)
		return DCGM_ST_VER_MISMATCH;
	CALL("GetGpuInstanceHierarchy");
	to->count = 0;
	f = file("instances", "r");
	while (f && fscanf(f, "%u %u %u", &kind, &id, &gpu) == 3) {
		dcgmMigHierarchyInfo_v2 *x = &to->entityList[to->count++];
		memset(x, 0, sizeof *x);
		x->entity.entityGroupId = (dcgm_field_entity_group_t)kind;
		x->entity.entityId = id;
		/* the parent of a compute instance is its GPU instance, which has the same number here */
		x->parent.entityGroupId = kind == DCGM_FE_GPU_CI ? DCGM_FE_GPU_I : DCGM_FE_GPU;
		x->parent.entityId = kind == DCGM_FE_GPU_CI ? id : gpu;
	}
	if (f)
		fclose(f);
	return DCGM_ST_OK;
}

#include "policy.c"
