package main

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"regexp"
	"time"

	"github.com/oracle/oci-go-sdk/v65/common"
	"github.com/oracle/oci-go-sdk/v65/common/auth"
	"github.com/oracle/oci-go-sdk/v65/core"

	"github.com/nvidia/nvsentinel/health-monitors/csp-health-monitor/announcement"
)

// CloudConfig defines which part of Oracle Cloud Infrastructure is asked.
type CloudConfig struct {
	// Compartments are the OCIDs of those that hold instances; those inside of them are
	// not searched.
	Compartments []string `toml:"compartments" bounds:"not empty" flag:"compartments" usage:"OCIDs of the compartments that contain the instances."`
	// Auth is how the monitor authenticates: workload, instance or file.
	Auth string `toml:"auth" flag:"auth" usage:"Authentication of the monitor: workload (service account, on OKE), instance (node) or file (~/.oci/config)."`
	// Endpoint replaces the address of the API.
	Endpoint string `toml:"endpoint" flag:"endpoint" usage:"URL of the Core Services API, with scheme and host only. Empty uses the endpoint of the region."`
}

// attempts is how often a page is asked for before the reading fails.
const attempts = 3

// callLimit bounds one HTTP exchange.
const callLimit = 30 * time.Second

// Source is some compartments of a tenancy in one region.
type Source struct {
	compute      core.ComputeClient
	compartments []string
}

var _ announcement.Source = (*Source)(nil)

// New makes the source.
func New(c CloudConfig) (*Source, error) {
	creds, err := provider(c.Auth)
	if err != nil {
		return nil, err
	}
	return As(c, creds)
}

// provider finds who asks.
func provider(kind string) (creds common.ConfigurationProvider, err error) {
	switch kind {
	case "workload":
		creds, err = auth.OkeWorkloadIdentityConfigurationProvider()
	case "instance":
		creds, err = auth.InstancePrincipalConfigurationProvider()
	case "file":
		creds = common.DefaultConfigProvider()
	default:
		return nil, fmt.Errorf("auth: %q is not workload, instance or file", kind)
	}
	if err != nil {
		return nil, fmt.Errorf("finding the credentials for auth=%s: %w", kind, err)
	}
	return creds, nil
}

// As makes the source of one who asks.
func As(c CloudConfig, creds common.ConfigurationProvider) (*Source, error) {
	if len(c.Compartments) == 0 {
		return nil, errors.New("compartments: no compartment is set, set at least one")
	}
	compute, err := core.NewComputeClientWithConfigurationProvider(creds)
	if err != nil {
		return nil, fmt.Errorf("creating a Compute client: %w", err)
	}
	if c.Endpoint != "" {
		compute.Host = c.Endpoint
	}
	compute.HTTPClient = &http.Client{Timeout: callLimit}
	again := common.NewRetryPolicy(attempts, common.DefaultShouldRetryOperation, func(r common.OCIOperationResponse) time.Duration {
		return 100 * time.Millisecond << (2 * (r.AttemptNumber - 1))
	})
	compute.SetCustomClientConfiguration(common.CustomClientConfiguration{RetryPolicy: &again})
	return &Source{compute: compute, compartments: c.Compartments}, nil
}

// providerID is that of the cloud controller manager of OCI: the instance's OCID, with
// or without a scheme.
var providerID = regexp.MustCompile(`^(?:oci://)?(ocid1\.instance\.[a-z0-9-]+\.[a-z0-9-]*\.[a-zA-Z0-9._-]+)$`)

// Machine is the instance's OCID.
func (s *Source) Machine(id string) (string, bool) {
	return announcement.Match(providerID, id)
}

// Names asks for the display names of instances. The names of their network cards take
// rights on the network, which the monitor has not. One that OCI denies is left out.
func (s *Source) Names(ctx context.Context, machines []string) (map[string][]string, error) {
	names := map[string][]string{}
	for _, machine := range machines {
		answer, err := call(ctx, s.compute.GetInstance, core.GetInstanceRequest{InstanceId: &machine})
		if e, ok := common.IsServiceError(err); ok && e.GetHTTPStatusCode() == http.StatusNotFound {
			continue
		}
		if err != nil {
			return names, fmt.Errorf("reading the name of %s: %w", machine, refused(err))
		}
		names[machine] = []string{announcement.Value(answer.DisplayName)}
	}
	return names, nil
}

// Check lists one event of each compartment, and gets the first there is.
func (s *Source) Check(ctx context.Context) error {
	one, calls := 1, 0
	var first string
	for _, c := range s.compartments {
		answer, err := call(ctx, s.compute.ListInstanceMaintenanceEvents, core.ListInstanceMaintenanceEventsRequest{CompartmentId: &c, Limit: &one})
		if err != nil {
			return fmt.Errorf("checking the list of maintenance events of %s: %w", c, refused(err))
		}
		if len(answer.Items) > 0 && first == "" {
			first = announcement.Value(answer.Items[0].Id)
		}
	}
	if first == "" {
		return nil
	}
	if _, _, err := s.event(ctx, first, &calls); err != nil {
		return err
	}
	return nil
}

// refused adds to an error what ends it, where that is not the next poll.
func refused(err error) error {
	if e, ok := common.IsServiceError(err); ok && (e.GetHTTPStatusCode() == http.StatusNotFound || e.GetHTTPStatusCode() == http.StatusForbidden) {
		return fmt.Errorf("%w: allow it in a policy and check the compartment, it fails until then", err)
	}
	return err
}
