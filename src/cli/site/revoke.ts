import * as z from 'zod'
import { StartError } from '../../base/app-error.ts'
import type { CommandContext } from '../command-context.ts'
import { managementConfig, openManagement } from '../provision/management-access.ts'
import type { InvitesOptions } from './invites.ts'

const Device = z.object({
  id: z.string(),
  name: z.string(),
  hostname: z.string(),
  last_seen_at: z.string().nullable(),
  credential: z.object({ id: z.string() }).nullable(),
})
type Device = z.infer<typeof Device>

/** Ends the authtoken of one device. `wanted`: its name or id. Throws a StartError. */
export async function revoke(
  context: CommandContext,
  wanted: string,
  options: InvitesOptions,
): Promise<void> {
  const client = await openManagement(context, options, managementConfig(context, options))
  const { id, name, credential } = oneDevice(await client.list('devices', Device), wanted)
  if (!credential) throw new StartError(`${name} (${id}) has no authtoken. Nothing was changed.`)
  await client.delete(`credentials/${credential.id}`)
  const said = options.json
    ? JSON.stringify({ device_id: id, name, credential_id: credential.id })
    : `Revoked. ${name} is offline, and cannot connect again. To let it back in: device-agent gateway invite --name ${name}`
  context.stdout.write(`${said}\n`)
}

function oneDevice(devices: readonly Device[], wanted: string): Device {
  const found = devices.filter(({ id, name }) => id === wanted || name === wanted)
  const [device] = found
  if (device && found.length === 1) return device
  if (!device) {
    throw new StartError(
      `This gateway has no device ${wanted}. The console and GET /devices list all devices.`,
    )
  }
  const each = found.map(({ id, hostname, last_seen_at: seen }) =>
    [`  ${id}`, hostname && `host ${hostname}`, `last seen ${seen ?? 'never'}`]
      .filter(Boolean)
      .join(', '),
  )
  throw new StartError(
    `${found.length} devices are named ${wanted}. Nothing was changed. Give the id of one:\n${each.join('\n')}`,
  )
}
