/** What a reset of the identity means, for `--help` and for who does it. */
export const WHAT_HAPPENS = `The device gets an identity of its own, so that it is no copy of another one any more. Do this on the copy,
not on the device that it was copied from.
Its tunnels and AGENT_DOMAIN stay as they are. Those names belong to the other device while that is online,
and are refused here as a conflict: give this device names of its own, by PUT and DELETE /tunnels and in AGENT_DOMAIN.
The tokens of its API are copies, too: rotate them (device-agent token rotate).
`
