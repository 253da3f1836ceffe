import { readdirSync, readFileSync } from 'node:fs'
import { join } from 'node:path'
import { PassThrough } from 'node:stream'
import { describe, expect, it } from 'vitest'
import { parse, parseAllDocuments } from 'yaml'
import { readManifest } from '../../packaging/project.ts'
import { createProgram } from '../../src/cli/program.ts'
import { parseConfig } from '../../src/config.ts'
import { ROOT } from '../helpers/document-part.ts'

/** What both forms say of one container of ours. */
interface Deployed {
  readonly name: string
  readonly image: string
  readonly args: readonly string[]
  readonly env: Readonly<Record<string, string>>
  readonly checks: readonly (readonly string[])[]
  readonly secrets: readonly string[]
}

interface ComposeService {
  readonly image: string
  readonly command: readonly string[]
  readonly environment: Readonly<Record<string, string>>
  readonly healthcheck: { readonly test: readonly string[] }
  readonly volumes: readonly string[]
}

interface PodContainer {
  readonly image: string
  readonly args: readonly string[]
  readonly env: readonly { readonly name: string; readonly value: string }[]
  readonly livenessProbe: Probe
  readonly startupProbe: Probe
  readonly volumeMounts: readonly { readonly mountPath: string }[]
  readonly securityContext: object
}

interface Probe {
  readonly exec?: { readonly command: readonly string[] }
  readonly httpGet?: { readonly path: string; readonly port: number }
}

const { version } = readManifest()
const VALUES: Readonly<Record<string, string>> = {
  VERSION: version,
  PUBLIC_NAME: 'gateway.example.com',
  DOMAIN: '*.site.example.com',
  UPSTREAM: 'web:8080',
}

const filesIn = (folder: string) =>
  readdirSync(join(ROOT, 'packaging', folder)).map((name) => join('packaging', folder, name))

/** Services of our image in a compose file, with its variables filled in after it was parsed, as compose does. */
function composeServices(path: string): Record<string, ComposeService> {
  const parsed = parse(readFileSync(join(ROOT, path), 'utf8'), { merge: true })
  const form = /\$\{(\w+):[-?][^}]+\}/g
  const filled = JSON.stringify(parsed).replace(form, (_, name) => VALUES[name] ?? `?${name}`)
  const { services } = JSON.parse(filled)
  return Object.fromEntries(
    Object.entries(services as Record<string, ComposeService>).filter(([, { image }]) =>
      image.startsWith('device-agent:'),
    ),
  )
}

const composed = filesIn('compose').flatMap((path) =>
  Object.entries(composeServices(path)).map(([name, service]): Deployed => {
    const [, ...check] = service.healthcheck.test
    return {
      name: `${path}: ${name}`,
      image: service.image,
      args: service.command,
      env: service.environment,
      checks: [check],
      secrets: service.volumes.flatMap((it) => it.match(/:(\/run\/secrets\/[^:]+):ro$/)?.[1] ?? []),
    }
  }),
)

const orchestrated = filesIn('kubernetes').flatMap((path) =>
  parseAllDocuments(readFileSync(join(ROOT, path), 'utf8'))
    .map((document) => document.toJS())
    .filter(({ kind }) => kind === 'StatefulSet')
    .map(({ spec }): Deployed => {
      const [container] = spec.template.spec.containers as [PodContainer]
      const { image, args, env, livenessProbe, startupProbe } = container
      return {
        name: path,
        image,
        args,
        env: Object.fromEntries(env.map(({ name, value }) => [name, value])),
        checks: [livenessProbe, startupProbe].flatMap(({ exec }) => (exec ? [exec.command] : [])),
        secrets: ['/run/secrets/join'],
      }
    }),
)

/** Fails with the words of the command line when it does not know a command or an option. */
async function expectCommand(args: readonly string[]): Promise<void> {
  const stdout = new PassThrough()
  const stop = new AbortController().signal
  const program = createProgram({ environment: {}, stdout, stderr: stdout, stop })
  const ended = program.parseAsync([...args, '--help'], { from: 'user' })
  await expect(ended).rejects.toMatchObject({ code: 'commander.helpDisplayed' })
}

describe.each([...composed, ...orchestrated])('$name', ({ image, args, env, checks, secrets }) => {
  it('starts this version with settings that it knows', async () => {
    expect(image).toBe(`device-agent:${version}`)
    await expectCommand(args)
    const config = parseConfig(env)
    const { caCertPath, joinFile } = config.agent
    const files = [caCertPath, joinFile].filter((path) => path !== undefined)
    for (const path of files) expect(secrets).toContain(path)
    // Without it, TLS is required, and the PostgreSQL of the file has none.
    const { GATEWAY_DATABASE_URL: url } = env
    if (url !== undefined) expect(new URL(url).searchParams.get('sslmode')).toBe('disable')
  })

  it('checks health by a command of the program, for the role that runs', async () => {
    for (const [program, ...check] of checks) {
      expect(program).toBe('device-agent')
      await expectCommand(check)
      expect(check).toEqual(args[0] === 'gateway' ? ['health', '--gateway'] : ['health'])
    }
  })
})

describe('the compose files', () => {
  it('are projects of their own, so that one does not remove the volumes of another', () => {
    const names = filesIn('compose').map(
      (path) => parse(readFileSync(join(ROOT, path), 'utf8'), { merge: true }).name,
    )
    expect(new Set(names).size).toBe(3)
    expect(names).not.toContain(undefined)
  })

  it('have no variable that could be empty without an error', () => {
    // Without its public name, a gateway would get a certificate that no device accepts.
    for (const { env } of composed) expect(JSON.stringify(env)).not.toContain('${')
  })
})

describe.each([...composed, ...orchestrated].filter(({ args }) => args[0] === 'gateway'))(
  '$name',
  ({ env }) => {
    it('listens on the ports that its URLs have for visitors', () => {
      expect([env.GATEWAY_HTTP_LISTEN, env.GATEWAY_HTTPS_LISTEN]).toEqual([
        '0.0.0.0:80',
        '0.0.0.0:443',
      ])
    })
  },
)

describe('every container', () => {
  it('is hardened, and a stop waits for what drains', () => {
    for (const path of filesIn('compose')) {
      for (const service of Object.values(composeServices(path))) {
        expect(service).toMatchObject({
          read_only: true,
          init: true,
          cap_drop: ['ALL'],
          security_opt: ['no-new-privileges:true'],
          // In a cluster, agents and names move to other gateways first.
          stop_grace_period: service.environment.GATEWAY_DATABASE_URL ? '90s' : '30s',
        })
      }
    }
    for (const path of filesIn('kubernetes')) {
      const [{ spec }] = parseAllDocuments(readFileSync(join(ROOT, path), 'utf8')).map((it) =>
        it.toJS(),
      ) as [{ spec: { template: { spec: { containers: [PodContainer] } } } }]
      expect(spec.template.spec).toMatchObject({
        terminationGracePeriodSeconds: 30,
        securityContext: { runAsNonRoot: true },
      })
      expect(spec.template.spec.containers[0].securityContext).toEqual({
        allowPrivilegeEscalation: false,
        readOnlyRootFilesystem: true,
        capabilities: { drop: ['ALL'] },
      })
    }
  })
})
