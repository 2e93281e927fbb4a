// Package protos has the names of package api/protos under the import path that
// monitors written for the specification use. New code imports api/protos.
package protos

import api "github.com/nvidia/nvsentinel/api/protos"

// The types of the API.
type (
	BehaviourOverrides                   = api.BehaviourOverrides
	Entity                               = api.Entity
	HealthEvent                          = api.HealthEvent
	HealthEventOutcome                   = api.HealthEventOutcome
	HealthEventResult                    = api.HealthEventResult
	HealthEventResults                   = api.HealthEventResults
	HealthEvents                         = api.HealthEvents
	PlatformConnectorClient              = api.PlatformConnectorClient
	PlatformConnectorServer              = api.PlatformConnectorServer
	ProcessingStrategy                   = api.ProcessingStrategy
	RecommendedAction                    = api.RecommendedAction
	UnimplementedPlatformConnectorServer = api.UnimplementedPlatformConnectorServer
	UnsafePlatformConnectorServer        = api.UnsafePlatformConnectorServer
)

// The constants of the API.
const (
	HealthEventOutcome_HEALTH_EVENT_OUTCOME_ACCEPTED       = api.HealthEventOutcome_HEALTH_EVENT_OUTCOME_ACCEPTED
	HealthEventOutcome_HEALTH_EVENT_OUTCOME_REJECTED       = api.HealthEventOutcome_HEALTH_EVENT_OUTCOME_REJECTED
	HealthEventOutcome_HEALTH_EVENT_OUTCOME_RETRY          = api.HealthEventOutcome_HEALTH_EVENT_OUTCOME_RETRY
	HealthEventOutcome_HEALTH_EVENT_OUTCOME_UNSPECIFIED    = api.HealthEventOutcome_HEALTH_EVENT_OUTCOME_UNSPECIFIED
	PlatformConnector_HealthEventOccurredV1_FullMethodName = api.PlatformConnector_HealthEventOccurredV1_FullMethodName
	PlatformConnector_HealthEventOccurredV2_FullMethodName = api.PlatformConnector_HealthEventOccurredV2_FullMethodName
	ProcessingStrategy_PERSIST_ONLY                        = api.ProcessingStrategy_PERSIST_ONLY
	ProcessingStrategy_PROCESS                             = api.ProcessingStrategy_PROCESS
	RecommendedAction_COMPONENT_RESET                      = api.RecommendedAction_COMPONENT_RESET
	RecommendedAction_CONTACT_SUPPORT                      = api.RecommendedAction_CONTACT_SUPPORT
	RecommendedAction_CUSTOM                               = api.RecommendedAction_CUSTOM
	RecommendedAction_NONE                                 = api.RecommendedAction_NONE
	RecommendedAction_REPLACE_VM                           = api.RecommendedAction_REPLACE_VM
	RecommendedAction_RESTART_BM                           = api.RecommendedAction_RESTART_BM
	RecommendedAction_RESTART_VM                           = api.RecommendedAction_RESTART_VM
	RecommendedAction_RUN_DCGMEUD                          = api.RecommendedAction_RUN_DCGMEUD
	RecommendedAction_RUN_FIELDDIAG                        = api.RecommendedAction_RUN_FIELDDIAG
	RecommendedAction_UNKNOWN                              = api.RecommendedAction_UNKNOWN
)

// The variables and functions of the API.
var (
	File_health_event_proto         = api.File_health_event_proto
	HealthEventOutcome_name         = api.HealthEventOutcome_name
	HealthEventOutcome_value        = api.HealthEventOutcome_value
	NewPlatformConnectorClient      = api.NewPlatformConnectorClient
	PlatformConnector_ServiceDesc   = api.PlatformConnector_ServiceDesc
	ProcessingStrategy_name         = api.ProcessingStrategy_name
	ProcessingStrategy_value        = api.ProcessingStrategy_value
	RecommendedAction_name          = api.RecommendedAction_name
	RecommendedAction_value         = api.RecommendedAction_value
	RegisterPlatformConnectorServer = api.RegisterPlatformConnectorServer
)
