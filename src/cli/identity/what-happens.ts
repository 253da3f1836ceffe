/** What a reset of the identity means, for `--help` and for who does it. */
export const WHAT_HAPPENS = `The device gets a new identity. Run this command on the copy, not on the original device.
Tunnels and AGENT_DOMAIN stay the same. While the original device is online, they are refused here as a
conflict. Change them on this device: PUT and DELETE /tunnels, and AGENT_DOMAIN.
The API tokens are copies, too. Rotate them: device-agent token rotate.
`
