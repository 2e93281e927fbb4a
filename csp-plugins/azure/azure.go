package main

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/arm"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/cloud"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/policy"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/to"
	"github.com/Azure/azure-sdk-for-go/sdk/azidentity"
	"github.com/Azure/azure-sdk-for-go/sdk/resourcemanager/compute/armcompute/v7"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	csp "github.com/nvidia/nvsentinel/csp-plugins/internal/cloud"
)

// Provider controls virtual machines of Azure.
type Provider struct {
	credential azcore.TokenCredential
	options    arm.ClientOptions
}

// callLimit bounds one exchange with Azure; it is less than the janitor's own limit of
// a call.
const callLimit = 20 * time.Second

// never is how often a request is repeated: the janitor repeats; a client that repeats
// by itself could do a thing twice.
var never = policy.RetryOptions{MaxRetries: -1}

// New makes the provider. Credentials are found as DefaultAzureCredential finds them:
// in the environment, by the workload identity of the service account, by a managed
// identity.
func New(c Config) (*Provider, error) {
	where := c.where()
	found, err := azidentity.NewDefaultAzureCredential(&azidentity.DefaultAzureCredentialOptions{
		ClientOptions: azcore.ClientOptions{Cloud: where, Retry: never}, DisableInstanceDiscovery: c.Authority != "",
	})
	if err != nil {
		return nil, fmt.Errorf("finding the Azure credentials: %w", err)
	}
	return With(found, azcore.ClientOptions{Cloud: where}), nil
}

// With makes the provider with a credential and the options of its clients.
func With(credential azcore.TokenCredential, options azcore.ClientOptions) *Provider {
	options.Retry = never
	return &Provider{credential: signer{credential}, options: arm.ClientOptions{ClientOptions: options, DisableRPRegistration: true}}
}

// prefix stands before the resource id in spec.providerID.
const prefix = "azure://"

// kinds of machines, by the type of their resource in lower case.
const (
	alone = "microsoft.compute/virtualmachines"
	inSet = "microsoft.compute/virtualmachinescalesets/virtualmachines"
)

// resource is where a machine is. set is empty for one that is in no scale set; in a set
// name is the id of the instance.
type resource struct{ subscription, group, set, name string }

// parse reads the providerID of the Kubernetes cloud provider of Azure:
// azure:///subscriptions/S/resourceGroups/G/providers/Microsoft.Compute/virtualMachines/NAME
// or .../virtualMachineScaleSets/SET/virtualMachines/ID.
func parse(machine string) (resource, error) {
	id, ok := strings.CutPrefix(machine, prefix)
	parsed, err := arm.ParseResourceID(id)
	if ok && err == nil && parsed.SubscriptionID != "" && parsed.ResourceGroupName != "" && parsed.Name != "" && !strings.ContainsAny(id, "?#%") {
		at := resource{subscription: parsed.SubscriptionID, group: parsed.ResourceGroupName, name: parsed.Name}
		switch strings.ToLower(parsed.ResourceType.String()) {
		case inSet:
			at.set = parsed.Parent.Name
			return at, nil
		case alone:
			return at, nil
		}
	}
	return resource{}, csp.Malformed(machine, "azure:///subscriptions/S/resourceGroups/G/providers/Microsoft.Compute/... of a virtual machine")
}

// clients of a subscription.
func (p *Provider) clients(subscription string) (*armcompute.ClientFactory, error) {
	made, err := armcompute.NewClientFactory(subscription, p.credential, &p.options)
	if err != nil {
		return nil, status.Errorf(codes.FailedPrecondition, "creating a client for subscription %q: %v", subscription, err)
	}
	return made, nil
}

// facts are what Azure reports about a machine.
type facts struct {
	// vm is the name of a machine that is in no scale set; that in a set is a number.
	vm, computer        string
	tags                map[string]*string
	provisioning, power string
}

const powerState = "PowerState/"

// inspect asks for a machine and for what it is doing.
func (p *Provider) inspect(ctx context.Context, machine string) (facts, error) {
	at, err := parse(machine)
	if err != nil {
		return facts{}, err
	}
	c, err := p.clients(at.subscription)
	if err != nil {
		return facts{}, err
	}
	ctx, cancel := context.WithTimeout(ctx, callLimit)
	defer cancel()
	f := facts{}
	var statuses []*armcompute.InstanceViewStatus
	var os *armcompute.OSProfile
	if at.set != "" {
		got, err := c.NewVirtualMachineScaleSetVMsClient().Get(ctx, at.group, at.set, at.name, &armcompute.VirtualMachineScaleSetVMsClientGetOptions{Expand: to.Ptr(armcompute.InstanceViewTypesInstanceView)})
		if err != nil || got.Properties == nil {
			return f, answered(err)
		}
		f.tags, f.provisioning, os = got.Tags, value(got.Properties.ProvisioningState), got.Properties.OSProfile
		if v := got.Properties.InstanceView; v != nil {
			statuses = v.Statuses
		}
	} else {
		got, err := c.NewVirtualMachinesClient().Get(ctx, at.group, at.name, &armcompute.VirtualMachinesClientGetOptions{Expand: to.Ptr(armcompute.InstanceViewTypesInstanceView)})
		if err != nil || got.Properties == nil {
			return f, answered(err)
		}
		f.vm, f.tags, f.provisioning, os = at.name, got.Tags, value(got.Properties.ProvisioningState), got.Properties.OSProfile
		if v := got.Properties.InstanceView; v != nil {
			statuses = v.Statuses
		}
	}
	for _, s := range statuses {
		if state, ok := strings.CutPrefix(value(s.Code), powerState); ok {
			f.power = state
		}
	}
	if os != nil {
		f.computer = value(os.ComputerName)
	}
	return f, nil
}

func value(s *string) string {
	if s == nil {
		return ""
	}
	return *s
}

// State is up for a machine that has power and that Azure is not at work on. An earlier
// operation that failed does not count.
func (p *Provider) State(ctx context.Context, machine string) (csp.State, error) {
	f, err := p.inspect(ctx, machine)
	switch {
	case status.Code(err) == codes.NotFound:
		return csp.Gone, nil
	case err != nil:
		return "", err
	case f.power == "running" && (f.provisioning == "Succeeded" || f.provisioning == "Failed"):
		return csp.Up, nil
	}
	return csp.NotUp, nil
}

// Kinds of names of a machine.
const (
	// ComputerName is the host name that Azure gave the machine when it made it.
	ComputerName = "computer-name"
	// VMName is the name of a machine that is in no uniform scale set.
	VMName = "vm-name"
)

// Kinds are all of them.
var Kinds = []string{ComputerName, VMName}

// Canonical is the resource id in small letters: Azure ignores case.
func (p *Provider) Canonical(machine string) (string, error) {
	_, err := parse(machine)
	return strings.ToLower(machine), err
}

// Identity asks for the machine's names and tags.
func (p *Provider) Identity(ctx context.Context, machine string) (csp.Identity, error) {
	f, err := p.inspect(ctx, machine)
	if err != nil {
		return csp.Identity{}, err
	}
	id := csp.Identity{Names: map[string][]string{ComputerName: {f.computer}, VMName: {f.vm}}, Tags: map[string]string{}}
	for key, text := range f.tags {
		id.Tags[key] = value(text)
	}
	return id, nil
}

// Begin restarts or deletes the machine. Azure knows no request ids: the id goes with
// the request for those who look into its activity log. Force deletes without waiting
// for the operating system; a restart has no such thing.
func (p *Provider) Begin(ctx context.Context, s csp.Signal) (string, error) {
	at, err := parse(s.Machine)
	if err != nil {
		return "", err
	}
	c, err := p.clients(at.subscription)
	if err != nil {
		return "", err
	}
	ctx, cancel := context.WithTimeout(ctx, callLimit)
	defer cancel()
	ctx = policy.WithHTTPHeader(ctx, http.Header{"X-Ms-Client-Request-Id": {s.ID.String()}})
	begun, err := begin(ctx, c, at, s)
	if err != nil {
		return "", answered(err)
	}
	if begun.Done() {
		return "", nil
	}
	token, err := begun.ResumeToken()
	if err != nil {
		return "", nil // it was taken; without a token its end is not asked about
	}
	return token, nil
}

// poller is one of an operation, whatever its result.
type poller interface {
	Done() bool
	ResumeToken() (string, error)
}

func begin(ctx context.Context, c *armcompute.ClientFactory, at resource, s csp.Signal) (poller, error) {
	force := new(s.Force)
	switch {
	case at.set != "" && s.Terminate:
		ids := armcompute.VirtualMachineScaleSetVMInstanceRequiredIDs{InstanceIDs: []*string{&at.name}}
		return c.NewVirtualMachineScaleSetsClient().BeginDeleteInstances(ctx, at.group, at.set, ids, &armcompute.VirtualMachineScaleSetsClientBeginDeleteInstancesOptions{ForceDeletion: force})
	case at.set != "":
		return c.NewVirtualMachineScaleSetVMsClient().BeginRestart(ctx, at.group, at.set, at.name, nil)
	case s.Terminate:
		return c.NewVirtualMachinesClient().BeginDelete(ctx, at.group, at.name, &armcompute.VirtualMachinesClientBeginDeleteOptions{ForceDeletion: force})
	}
	return c.NewVirtualMachinesClient().BeginRestart(ctx, at.group, at.name, nil)
}

// Config is the configuration of the plugin.
type Config struct {
	csp.Config
	csp.Proof
	// Cloud is one of clouds.
	Cloud string `toml:"cloud" bounds:"public, china, government" flag:"cloud" usage:"Azure cloud: public, china or government."`
	// Endpoint replaces the address of Azure Resource Manager.
	Endpoint string `toml:"endpoint" flag:"arm-endpoint" usage:"HTTPS URL of Azure Resource Manager in a private cloud. Empty uses the endpoint of --cloud."`
	// Authority is who issues tokens in a private cloud.
	Authority string `toml:"authority" flag:"authority" usage:"HTTPS URL of the authority that issues tokens in a private cloud. If set, it is not verified with Microsoft. Empty uses AZURE_AUTHORITY_HOST, or else the authority of --cloud."`
}

// clouds are Azure's own.
var clouds = map[string]cloud.Configuration{"public": cloud.AzurePublic, "china": cloud.AzureChina, "government": cloud.AzureGovernment}

// Default is the configuration without a file.
func Default() Config {
	return Config{Config: csp.Default(), Proof: csp.Proof{NodeNameFrom: Kinds}, Cloud: "public"}
}

// Validate joins everything that is wrong.
func (c Config) Validate() error {
	problems := []error{c.Config.Validate(), c.Proof.Validate(Kinds)}
	if _, ok := clouds[c.Cloud]; !ok {
		problems = append(problems, fmt.Errorf("cloud (--cloud) is %q, use public, china or government", c.Cloud))
	}
	for name, value := range map[string]string{"endpoint (--arm-endpoint)": c.Endpoint, "authority (--authority)": c.Authority} {
		if u, err := url.Parse(value); value != "" && (err != nil || u.Scheme != "https" || u.Host == "") {
			problems = append(problems, fmt.Errorf("%s is %q, use the form https://HOST", name, value))
		}
	}
	return errors.Join(problems...)
}

// where is the cloud that the configuration means.
func (c Config) where() cloud.Configuration {
	found := clouds[c.Cloud]
	manager := found.Services[cloud.ResourceManager]
	if c.Endpoint != "" {
		manager.Endpoint = c.Endpoint
	}
	authority := c.Authority
	if authority == "" && c.Cloud != "public" {
		authority = found.ActiveDirectoryAuthorityHost // else AZURE_AUTHORITY_HOST counts
	}
	return cloud.Configuration{
		ActiveDirectoryAuthorityHost: authority,
		Services:                     map[cloud.ServiceName]cloud.ServiceConfiguration{cloud.ResourceManager: manager},
	}
}
