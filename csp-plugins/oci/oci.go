package main

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"regexp"
	"time"

	"github.com/oracle/oci-go-sdk/v65/common"
	"github.com/oracle/oci-go-sdk/v65/common/auth"
	"github.com/oracle/oci-go-sdk/v65/core"
	"github.com/oracle/oci-go-sdk/v65/workrequests"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/nvidia/nvsentinel/csp-plugins/internal/cloud"
)

// Provider controls instances of OCI.
type Provider struct {
	compute core.ComputeClient
	network core.VirtualNetworkClient
	work    workrequests.WorkRequestClient
}

// callLimit bounds one exchange with OCI; it is less than the janitor's own limit of
// a call.
const callLimit = 20 * time.Second

// New makes the provider. It fails if there are no credentials of the kind that the
// configuration names.
func New(c Config) (*Provider, error) {
	identity, err := identify(c)
	if err != nil {
		return nil, fmt.Errorf("finding the OCI credentials (auth is %s): %w", c.Auth, err)
	}
	p := &Provider{}
	if p.compute, err = core.NewComputeClientWithConfigurationProvider(identity); err != nil {
		return nil, fmt.Errorf("creating an OCI client: %w", err)
	}
	if p.network, err = core.NewVirtualNetworkClientWithConfigurationProvider(identity); err != nil {
		return nil, fmt.Errorf("creating an OCI client: %w", err)
	}
	if p.work, err = workrequests.NewWorkRequestClientWithConfigurationProvider(identity); err != nil {
		return nil, fmt.Errorf("creating an OCI client: %w", err)
	}
	// The janitor repeats; a client that repeats by itself, or holds requests back,
	// hides what was done.
	never := common.NoRetryPolicy()
	for _, client := range []*common.BaseClient{&p.compute.BaseClient, &p.network.BaseClient, &p.work.BaseClient} {
		client.Configuration.RetryPolicy, client.Configuration.CircuitBreaker = &never, nil
		client.HTTPClient, client.Signer = dispatcher{&http.Client{Timeout: callLimit}}, signer{client.Signer}
		if c.Endpoint != "" {
			client.Host = c.Endpoint
		}
	}
	return p, nil
}

func identify(c Config) (common.ConfigurationProvider, error) {
	switch c.Auth {
	case Instance:
		return auth.InstancePrincipalConfigurationProvider()
	case File:
		found, err := common.ConfigurationProviderFromFileWithProfile(c.ConfigFile, c.Profile, "")
		if err != nil {
			return nil, err
		}
		_, err = common.IsConfigurationProviderValid(found)
		return found, err
	}
	return auth.OkeWorkloadIdentityConfigurationProvider()
}

// providerID is that of the Kubernetes cloud provider of OCI, the instance's OCID;
// oci:// may stand before it.
var providerID = regexp.MustCompile(`^(?:oci://)?(ocid1\.instance\.[a-z0-9-]+\.[a-z0-9-]*\.[a-z0-9._-]+)$`)

// ocid is the OCID of a machine.
func ocid(machine string) (*string, error) {
	match := providerID.FindStringSubmatch(machine)
	if match == nil {
		return nil, cloud.Malformed(machine, "ocid1.instance.REALM.REGION.ID")
	}
	return &match[1], nil
}

func (p *Provider) get(ctx context.Context, machine string) (core.Instance, error) {
	id, err := ocid(machine)
	if err != nil {
		return core.Instance{}, err
	}
	found, err := p.compute.GetInstance(shown(ctx), core.GetInstanceRequest{InstanceId: id})
	return found.Instance, answered(err)
}

// State asks for the lifecycle state of the instance. Only TERMINATED is gone: OCI
// does not distinguish an instance that is not there from one that the plugin may not see.
func (p *Provider) State(ctx context.Context, machine string) (cloud.State, error) {
	found, err := p.get(ctx, machine)
	switch {
	case err != nil:
		return "", err
	case found.LifecycleState == core.InstanceLifecycleStateTerminated:
		return cloud.Gone, nil
	case found.LifecycleState == core.InstanceLifecycleStateRunning:
		return cloud.Up, nil
	}
	return cloud.NotUp, nil
}

// Kinds of names of an instance.
const (
	// DisplayName is the instance's.
	DisplayName = "display-name"
	// Hostname is the host name of the primary network card.
	Hostname = "hostname"
	// PrivateIP is the primary address of the primary network card; Nodes of OKE are
	// named after it.
	PrivateIP = "private-ip"
)

// Kinds are all of them.
var Kinds = []string{DisplayName, Hostname, PrivateIP}

// Canonical is the instance's OCID.
func (p *Provider) Canonical(machine string) (string, error) {
	id, err := ocid(machine)
	if err != nil {
		return "", err
	}
	return *id, nil
}

// Identity asks for the instance's name and tags, and for the names of its primary network
// card: further cards are attached and detached while it runs.
func (p *Provider) Identity(ctx context.Context, machine string) (cloud.Identity, error) {
	found, err := p.get(ctx, machine)
	if err != nil {
		return cloud.Identity{}, err
	}
	id := cloud.Identity{Names: map[string][]string{DisplayName: {value(found.DisplayName)}}, Tags: tags(found)}
	for page := (core.ListVnicAttachmentsRequest{CompartmentId: found.CompartmentId, InstanceId: found.Id}); ; {
		list, err := p.compute.ListVnicAttachments(shown(ctx), page)
		if err != nil {
			return cloud.Identity{}, answered(err)
		}
		for _, attachment := range list.Items {
			if attachment.LifecycleState != core.VnicAttachmentLifecycleStateAttached || attachment.VnicId == nil {
				continue
			}
			if err := p.card(ctx, attachment.VnicId, id.Names); err != nil {
				return cloud.Identity{}, err
			}
		}
		if page.Page = list.OpcNextPage; page.Page == nil {
			return id, nil
		}
	}
}

// card adds the names of one network card, if it is the primary one.
func (p *Provider) card(ctx context.Context, id *string, names map[string][]string) error {
	found, err := p.network.GetVnic(shown(ctx), core.GetVnicRequest{VnicId: id})
	if err != nil {
		return answered(err)
	}
	if found.IsPrimary != nil && *found.IsPrimary {
		names[Hostname], names[PrivateIP] = []string{value(found.HostnameLabel)}, []string{value(found.PrivateIp)}
	}
	return nil
}

// tags are the freeform ones by their keys, and the defined ones by NAMESPACE.KEY.
func tags(i core.Instance) map[string]string {
	out := map[string]string{}
	for namespace, defined := range i.DefinedTags {
		for key, x := range defined {
			if text, ok := x.(string); ok {
				out[namespace+"."+key] = text
			}
		}
	}
	maps.Copy(out, i.FreeformTags)
	return out
}

func value(s *string) string {
	if s == nil {
		return ""
	}
	return *s
}

// Begin resets the instance, under a retry token: OCI carries out each once within
// 24 hours. Without force the operating system has 15 minutes to go down. A
// termination has no such token, and needs none: it ends the instance of that OCID.
func (p *Provider) Begin(ctx context.Context, s cloud.Signal) (string, error) {
	id, err := ocid(s.Machine)
	if err != nil {
		return "", err
	}
	if s.Terminate {
		answer, err := p.compute.TerminateInstance(shown(ctx), core.TerminateInstanceRequest{InstanceId: id})
		return workRequestID(answer.RawResponse), answered(err)
	}
	action, token := core.InstanceActionActionSoftreset, s.ID.String()
	if s.Force {
		action = core.InstanceActionActionReset
	}
	answer, err := p.compute.InstanceAction(shown(ctx), core.InstanceActionRequest{InstanceId: id, Action: action, OpcRetryToken: &token})
	return workRequestID(answer.RawResponse), answered(err)
}

// workRequestID is the name of the operation, if OCI made one: for power actions of some
// shapes it does not, and only the lifecycle state shows their progress.
func workRequestID(r *http.Response) string {
	if r == nil {
		return ""
	}
	return r.Header.Get("opc-work-request-id")
}

// Progress asks for the work request.
func (p *Provider) Progress(ctx context.Context, _, operation string) (cloud.Progress, error) {
	found, err := p.work.GetWorkRequest(shown(ctx), workrequests.GetWorkRequestRequest{WorkRequestId: &operation})
	if code(err) == notAuthorizedOrNotFound {
		return cloud.UnknownOperation, nil
	}
	if err != nil {
		return "", answered(err)
	}
	switch found.Status {
	case workrequests.WorkRequestStatusSucceeded:
		return cloud.Over, nil
	case workrequests.WorkRequestStatusFailed, workrequests.WorkRequestStatusCanceled:
		return cloud.Over, status.Errorf(codes.FailedPrecondition, "work request %s is %s%s", operation, found.Status, p.why(ctx, operation))
	case workrequests.WorkRequestStatusAccepted, workrequests.WorkRequestStatusInProgress, workrequests.WorkRequestStatusCanceling:
	}
	return cloud.Running, nil
}

// why is what OCI reports about a work request that failed.
func (p *Provider) why(ctx context.Context, operation string) (words string) {
	list, err := p.work.ListWorkRequestErrors(shown(ctx), workrequests.ListWorkRequestErrorsRequest{WorkRequestId: &operation})
	if err != nil {
		return fmt.Sprintf(": reading the cause: %v", err)
	}
	for _, one := range list.Items {
		if one.Code != nil && one.Message != nil {
			words += ": " + *one.Code + ": " + *one.Message
		}
	}
	return words
}

// Ways in which the plugin proves who it is.
const (
	// Workload is the identity of the pod's service account on an OKE cluster.
	Workload = "workload-identity"
	// Instance is the identity of the instance that the plugin runs on.
	Instance = "instance-principal"
	// File is a configuration file of the OCI command line, with an API key.
	File = "config-file"
)

// Config is the configuration of the plugin.
type Config struct {
	cloud.Config
	cloud.Proof
	// Auth is one of the ways above.
	Auth string `toml:"auth" flag:"auth" usage:"Authentication of the plugin: workload-identity (OKE), instance-principal or config-file."`
	// ConfigFile and Profile are for config-file.
	ConfigFile string `toml:"configFile" flag:"oci-config-file" usage:"Configuration file of the OCI CLI, for --auth=config-file. The file that its key_file names is read too."`
	Profile    string `toml:"profile" flag:"oci-profile" usage:"Profile in the configuration file of the OCI CLI."`
	// Endpoint replaces the address of the APIs.
	Endpoint string `toml:"endpoint" flag:"oci-endpoint" usage:"URL of the Core Services and Work Requests APIs. Empty uses the endpoints of the region."`
}

// Default is the configuration without a file.
func Default() Config {
	return Config{Config: cloud.Default(), Proof: cloud.Proof{NodeNameFrom: Kinds}, Auth: Workload, Profile: "DEFAULT"}
}

// Validate joins everything that is wrong.
func (c Config) Validate() error {
	problems := []error{c.Config.Validate(), c.Proof.Validate(Kinds)}
	switch c.Auth {
	case Workload, Instance:
	case File:
		if c.ConfigFile == "" {
			problems = append(problems, errors.New("configFile (--oci-config-file) is empty, and auth (--auth) config-file requires it"))
		}
	default:
		problems = append(problems, fmt.Errorf("auth (--auth) is %q, use %s, %s or %s", c.Auth, Workload, Instance, File))
	}
	return errors.Join(problems...)
}

// The SDK runs each request in a goroutine of its own, and when a context ends it
// returns, while that goroutine still writes what it returns. So it is shown contexts
// without an end, and what sends the request heeds the end.

type ending struct{}

// shown is a context for the SDK.
func shown(ctx context.Context) context.Context {
	return context.WithValue(context.WithoutCancel(ctx), ending{}, ctx)
}

// dispatcher sends requests, each within the context that was given.
type dispatcher struct{ client *http.Client }

// Do sends a request.
func (d dispatcher) Do(r *http.Request) (*http.Response, error) {
	if ctx, ok := r.Context().Value(ending{}).(context.Context); ok {
		r = r.WithContext(ctx)
	}
	return d.client.Do(r)
}
