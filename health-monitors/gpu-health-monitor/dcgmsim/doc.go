// Package dcgmsim is a DCGM for tests: a library of our own in the place of
// libdcgm.so.4 (testdata/sim.c, built with gcc), and the host engine that it talks
// to, which is a folder of files. It records its calls, and does what a real DCGM 4.6.0
// was measured to do where that surprises.
//
// "Measured" is the answer of a DCGM 4.6.0 host engine with NVML injection, eight
// injected H100 and no hardware. "Read" was read in DCGM's public source and not run.
//
//	case                        DCGM 4.6.0                               simulated
//	add a Lost (4) GPU          measured: -18, GPU is lost               the same
//	add a Disabled (6) or       measured: -1, Bad parameter              the same
//	Detached (7) GPU
//	entity list                 measured: has those GPUs all the same    the same
//	status of a GPU whose       measured: stays 1 (OK)                   the same
//	driver hangs
//	stamp of a newest value     measured: time of its own sample         now, or the time of Freeze
//	driver hangs                measured: calls answer from the cache,   Freeze: the same
//	                            stamps stop, field 54 keeps its value
//	value that cannot be read   measured: status 0, blank                Field with a blank, Unreadable
//	                            (0x7ffffffffffffff0 and on)
//	UUID that cannot be read    measured: status 0, <<<NULL>>>           Unreadable
//	incident whose newest       measured: dropped, overall PASS          the same, for the fields of
//	sample is blank or older                                             the fault table
//	than 60 s
//	code 11, power unreadable   measured: newest sample of 155 is        the same
//	                            blank
//	XID 119 or 120 of the       measured: no incident of its own; every  KernelXID and Unreadable
//	kernel log                  value of every GPU blank, code 11 each
//	XID of the kernel log       measured: no incident, stamped with the  KernelXID, AppendXID
//	                            kernel's time, appended later
//	XID while the driver hangs  measured: appended up to minutes later   AppendXID
//	engine started again        measured: latched incidents are gone;    Start: the same
//	                            the kernel's records are read again,
//	                            their stamps differ by 1 us
//	machine started again       the kernel's records are gone            Reboot: the same
//	XID on a MIG instance       measured with fake instances: under      AppendXID: the same
//	                            FE_GPU_I or FE_GPU_CI, no incident
//	parent of an instance       read: dcgmGetGpuInstanceHierarchy        Instances
//	latched incidents of XIDs   measured: 79, 95, 94, 31, 48, 74, 119,   the same, of all these
//	                            120, 140 (field 230); 63, 64, 60, 57
//	                            make the codes of other fields
//	XIDs that NVML reports      measured with an H100, driver 580.159:   XID: one event for each number
//	                            one for all lines of XID 13 of a fault;
//	                            none of 13 where XID 43 follows it
//	watch of a MIG instance     read: an error of the call               Refuse
//	that is refused
//	NVSwitches                  not measured; listed once their module   Switches
//	                            is up
//	code 15, 16 of a switch     read: newest sample of 856 resp. 857 is  the same
//	                            above 0, not blank, and not older than
//	                            60 s
//	stamps of 856 and 857       read: time of the error, not of the      Value with a time
//	                            call; without an error none is known
//	reset required of a switch  read: field 864, sampled when watched    0, or Value
//	values of a switch whose    read: blank, and codes 15 and 16 are     Value with a blank
//	library is disconnected     dropped
//
// What it does not do: sample in cycles of 30 s (values are as new as the call), rates
// over a minute, links that are read live, the hourly sample of field 84.
package dcgmsim
