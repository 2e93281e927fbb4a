package main

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"regexp"
	"strings"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/arm"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/cloud"
	"github.com/Azure/azure-sdk-for-go/sdk/azidentity"
	"github.com/Azure/azure-sdk-for-go/sdk/resourcemanager/compute/armcompute/v7"
	"github.com/Azure/azure-sdk-for-go/sdk/resourcemanager/resourcegraph/armresourcegraph"

	"github.com/nvidia/nvsentinel/health-monitors/csp-health-monitor/announcement"
)

// CloudConfig defines which part of Azure is asked.
type CloudConfig struct {
	// Subscription is the id of that of the machines.
	Subscription string `toml:"subscription" bounds:"not empty" flag:"subscription" usage:"ID of the subscription that contains the machines."`
	// Pauses reports also updates that only pause a machine, or do not affect it.
	Pauses bool `toml:"includeFreezeUpdates" flag:"include-freeze-updates" usage:"If true, also reports updates that pause a machine for seconds (Freeze) or do not affect it (None)."`
	// WithoutUpdates asks for instance views alone.
	WithoutUpdates bool `toml:"withoutUpdates" flag:"without-updates" usage:"If true, reads instance views only and skips the updates of Microsoft.Maintenance."`
	// Cloud is public, government or china.
	Cloud string `toml:"cloud" flag:"cloud" usage:"Azure cloud: public, government or china. Empty is public."`
}

// callLimit bounds one attempt of a call.
const callLimit = 30 * time.Second

// Source is one subscription.
type Source struct {
	machines     *armcompute.VirtualMachinesClient
	sets         *armcompute.VirtualMachineScaleSetVMsClient
	graph        *armresourcegraph.Client // nil: instance views alone
	subscription string
	pauses       bool
}

var _ announcement.Source = (*Source)(nil)

// endpoints are the clouds of the SDK by the names of the configuration.
var endpoints = map[string]cloud.Configuration{
	"": cloud.AzurePublic, "public": cloud.AzurePublic, "government": cloud.AzureGovernment, "china": cloud.AzureChina,
}

// New makes the source. Credentials are found as the SDK finds them: by the workload
// identity of the service account, the environment or the machine. Requests are retried
// by the SDK (four attempts), then the reading fails.
func New(c CloudConfig) (*Source, error) {
	at, ok := endpoints[c.Cloud]
	if !ok {
		return nil, fmt.Errorf("cloud: %q is not public, government or china", c.Cloud)
	}
	creds, err := azidentity.NewDefaultAzureCredential(&azidentity.DefaultAzureCredentialOptions{ClientOptions: azcore.ClientOptions{Cloud: at}})
	if err != nil {
		return nil, fmt.Errorf("finding the Azure credentials: %w", err)
	}
	options := &arm.ClientOptions{DisableRPRegistration: true}
	options.Cloud, options.Retry.TryTimeout = at, callLimit
	return As(c, creds, options)
}

// As makes the source of one who asks.
func As(c CloudConfig, creds azcore.TokenCredential, options *arm.ClientOptions) (*Source, error) {
	if c.Subscription == "" {
		return nil, errors.New("subscription: no Azure subscription is set, set its ID")
	}
	compute, err := armcompute.NewClientFactory(c.Subscription, creds, options)
	if err != nil {
		return nil, fmt.Errorf("creating a Compute client: %w", err)
	}
	s := &Source{
		machines: compute.NewVirtualMachinesClient(), sets: compute.NewVirtualMachineScaleSetVMsClient(),
		subscription: c.Subscription, pauses: c.Pauses,
	}
	if c.WithoutUpdates {
		return s, nil
	}
	if s.graph, err = armresourcegraph.NewClient(creds, options); err != nil {
		return nil, fmt.Errorf("creating a Resource Graph client: %w", err)
	}
	return s, nil
}

// providerID is that of the Kubernetes cloud provider of Azure, which writes the same
// resource id in different cases.
var providerID = regexp.MustCompile(`^azure://(/subscriptions/[0-9a-z-]+/resourcegroups/[^/\s]+/providers/microsoft\.compute/(?:virtualmachines/[^/\s]+|virtualmachinescalesets/[^/\s]+/virtualmachines/[0-9]+))$`)

// Machine is the resource id in small letters.
func (s *Source) Machine(id string) (string, bool) {
	return announcement.Match(providerID, strings.ToLower(id))
}

// Names asks for the computer names of machines, which Azure fixes when it makes them. One
// that is gone is left out.
func (s *Source) Names(ctx context.Context, machines []string) (map[string][]string, error) {
	names := map[string][]string{}
	for _, machine := range machines {
		if !strings.HasPrefix(machine, "/subscriptions/"+strings.ToLower(s.subscription)+"/") {
			continue // of a subscription that is not asked
		}
		own, err := s.names(ctx, machine)
		if err != nil && status(err) != http.StatusNotFound {
			return names, fmt.Errorf("reading the name of %s: %w", machine, refused(err))
		}
		if err == nil {
			names[machine] = own
		}
	}
	return names, nil
}

// names of one machine, by the parts of its resource id.
func (s *Source) names(ctx context.Context, machine string) ([]string, error) {
	var os *armcompute.OSProfile
	var names []string
	switch part := strings.Split(machine, "/"); {
	case len(part) == 11:
		got, err := s.sets.Get(ctx, part[4], part[8], part[10], nil)
		if err != nil || got.Properties == nil {
			return nil, err
		}
		os = got.Properties.OSProfile
	default:
		got, err := s.machines.Get(ctx, part[4], part[8], nil)
		if err != nil || got.Properties == nil {
			return nil, err
		}
		names, os = []string{part[8]}, got.Properties.OSProfile
	}
	if os != nil {
		names = append(names, announcement.Value(os.ComputerName))
	}
	return names, nil
}

// Check asks for one page of machines and for one update.
func (s *Source) Check(ctx context.Context) error {
	if _, err := s.machines.NewListAllPager(&armcompute.VirtualMachinesClientListAllOptions{StatusOnly: &yes}).NextPage(ctx); err != nil {
		return fmt.Errorf("checking Microsoft.Compute/virtualMachines/read: %w", refused(err))
	}
	if s.graph == nil {
		return nil
	}
	if _, err := s.page(ctx, nil, 1); err != nil {
		return fmt.Errorf("checking Microsoft.Maintenance/updates/read: %w", refused(err))
	}
	return nil
}

// refused adds to an error what ends it, where that is not the next poll.
func refused(err error) error {
	if status(err) == http.StatusForbidden {
		return fmt.Errorf("%w: assign the role to the identity, it fails until then", err)
	}
	return err
}

// status is that of Azure's answer; zero where there was none.
func status(err error) int {
	if e, ok := errors.AsType[*azcore.ResponseError](err); ok {
		return e.StatusCode
	}
	return 0
}
