import type * as z from 'zod'
import type { ListenAddress } from '../../base/listen-address.ts'
import { SettingsSchema } from '../../settings.ts'

/** One row of the settings table. */
export interface SettingRow {
  readonly name: string
  readonly fallback: string
  readonly meaning: string
}

const COMPUTED_DEFAULTS: Readonly<Record<string, string>> = {
  AGENT_DATA_DIR: 'data',
  AGENT_HEARTBEAT_SECONDS: '10, metered 45',
  AGENT_PROBE_SECONDS: '30, metered 0',
  AGENT_DEFAULT_POLICY: 'default-policy.json',
  GATEWAY_DATA_DIR: 'data/gateway',
}

/** The settings table as docs/reference/settings.md and `help settings` show it. */
export function settingRows(): SettingRow[] {
  return Object.entries(SettingsSchema.shape).map(([name, schema]) => ({
    name,
    fallback: formatDefault(name, schema),
    meaning: schema.description ?? '',
  }))
}

function formatDefault(name: string, schema: z.ZodType): string {
  const fallback = COMPUTED_DEFAULTS[name] ?? schema.safeParse(undefined).data
  if (fallback === undefined || (Array.isArray(fallback) && fallback.length === 0)) return ''
  if (typeof fallback === 'object' && fallback !== null && 'port' in fallback) {
    const { host, port } = fallback as ListenAddress
    return `${host}:${port}`
  }
  return String(fallback)
}
