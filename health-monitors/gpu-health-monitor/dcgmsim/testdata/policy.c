/*
 * Policies, of which only that of XIDs is ever violated. A thread looks at the file
 * "xids" and calls back, as the host engine was measured to: once per GPU in five
 * seconds by the time of the sample, and what comes within them is lost; and not at
 * all any more, for the whole connection, once anything was unregistered. Part of
 * sim.c.
 */
#define MAX_REGISTRATIONS 16
#define MAX_GPUS 64
#define THROTTLE 5000000 /* us */

static struct {
	dcgmPolicyCondition_t condition;
	fpRecvUpdates callback;
	uint64_t user;
} registrations[MAX_REGISTRATIONS];
static int registered;	       /* how many of them */
static long seen;	       /* lines of the file that were looked at */
static long long fired[MAX_GPUS]; /* the sample that was last called back for */
static dcgmPolicyCondition_t wanted; /* by dcgmPolicySet; it outlives the client */
static pthread_once_t once = PTHREAD_ONCE_INIT;

/* unseen reads the next XID that was not looked at; 0 if file not found. */
static int unseen(unsigned int *gpu, unsigned int *xid, long long *at)
{
	char line[MAX_LINE];
	long n = 0;
	int found = 0;
	FILE *f = file("xids", "r");
	while (f && !found && fgets(line, sizeof line, f))
		if (n++ >= seen)
			found = sscanf(line, "%u %u %lld", gpu, xid, at) == 3 && *gpu < MAX_GPUS;
	if (f)
		fclose(f);
	if (n > seen)
		seen = n;
	return found;
}

static void violate(unsigned int gpu, unsigned int xid, long long at)
{
	dcgmPolicyCallbackResponse_t r;
	memset(&r, 0, sizeof r);
	r.version = dcgmPolicyCallbackResponse_version;
	r.condition = DCGM_POLICY_COND_XID;
	r.gpuId = gpu;
	r.val.xid.timestamp = at;
	r.val.xid.errnum = xid;
	for (int i = 0; i < registered; i++)
		if (registrations[i].condition & DCGM_POLICY_COND_XID)
			registrations[i].callback(&r, registrations[i].user);
}

static void *look(void *unused)
{
	unsigned int gpu, xid;
	long long at;
	(void)unused;
	for (;; usleep(2000)) {
		pthread_mutex_lock(&lock);
		while (registered && connected >= 0 && engine() == connected && unseen(&gpu, &xid, &at)) {
			if (fired[gpu] && at - fired[gpu] < THROTTLE)
				continue;
			fired[gpu] = at;
			violate(gpu, xid, at);
		}
		pthread_mutex_unlock(&lock);
	}
	return NULL;
}

static void begin(void)
{
	pthread_t thread;
	pthread_create(&thread, NULL, look, NULL);
	pthread_detach(thread);
}

dcgmReturn_t dcgmPolicyRegister_v2(dcgmHandle_t h, dcgmGpuGrp_t g, dcgmPolicyCondition_t condition, fpRecvUpdates callback, uint64_t user)
{
	unsigned int gpu, xid;
	long long at;
	(void)h;
	(void)g;
	CALL("PolicyRegister");
	pthread_once(&once, begin);
	pthread_mutex_lock(&lock);
	while (!registered && unseen(&gpu, &xid, &at))
		; /* what was before is nobody's */
	if (registered < MAX_REGISTRATIONS) {
		registrations[registered].condition = condition;
		registrations[registered].callback = callback;
		registrations[registered].user = user;
		registered++;
	}
	pthread_mutex_unlock(&lock);
	return DCGM_ST_OK;
}

dcgmReturn_t dcgmPolicyUnregister(dcgmHandle_t h, dcgmGpuGrp_t g, dcgmPolicyCondition_t condition)
{
	(void)h;
	(void)g;
	(void)condition; /* all watches of the connection go, whatever they are of */
	CALL("PolicyUnregister");
	pthread_mutex_lock(&lock);
	registered = 0;
	pthread_mutex_unlock(&lock);
	return DCGM_ST_OK;
}

dcgmReturn_t dcgmPolicySet(dcgmHandle_t h, dcgmGpuGrp_t g, dcgmPolicy_t *policy, dcgmStatus_t status)
{
	(void)h;
	(void)g;
	(void)status;
	CALL("PolicySet");
	wanted = policy->condition;
	return policy->version == dcgmPolicy_version ? DCGM_ST_OK : DCGM_ST_VER_MISMATCH;
}

dcgmReturn_t dcgmPolicyGet(dcgmHandle_t h, dcgmGpuGrp_t g, int count, dcgmPolicy_t *policy, dcgmStatus_t status)
{
	(void)h;
	(void)g;
	(void)status;
	CALL("PolicyGet");
	for (int i = 0; i < count; i++)
		policy[i].condition = wanted;
	return DCGM_ST_OK;
}

dcgmReturn_t dcgmGroupGetInfo(dcgmHandle_t h, dcgmGpuGrp_t g, dcgmGroupInfo_t *to)
{
	(void)h;
	CALL("GroupGetInfo");
	if (to->version != dcgmGroupInfo_version3)
		return DCGM_ST_VER_MISMATCH;
	if (g >= MAX_GROUPS || !groups[g].used)
		return DCGM_ST_NOT_CONFIGURED;
	to->count = (unsigned int)groups[g].count;
	memcpy(to->entityList, groups[g].members, (size_t)groups[g].count * sizeof groups[g].members[0]);
	return DCGM_ST_OK;
}
