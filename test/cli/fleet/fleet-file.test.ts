import { writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { describe, expect, it } from 'vitest'
import { StartError } from '../../../src/base/app-error.ts'
import { readFleet } from '../../../src/cli/fleet/fleet-file.ts'
import { temporaryFolder } from '../../helpers/temporary-folder.ts'

const GOOD = `version: 1
connect:
  address: 127.0.0.1:8443
  ca: ca.pem
vars: { port: 8001 }
device_vars:
  cam02: { port: 8002 }
policies:
  closed: closed.yaml
  open: { on_http_request: [] }
sets:
  cameras:
    tags: [camera]
    tunnels:
      - domain: view.{name}.site.test
        forwards_to: localhost:{port}
        policy: closed
      - { protocol: tcp, forwards_to: 22 }
`

function fileWith(text: string, more: Readonly<Record<string, string>> = {}): string {
  const folder = temporaryFolder()
  const files = { 'fleet.yaml': text, 'closed.yaml': 'on_http_request: []\n', ...more }
  for (const [name, content] of Object.entries(files)) writeFileSync(join(folder, name), content)
  return join(folder, 'fleet.yaml')
}

/** What is wrong with a file, with its path as `fleet.yaml`. */
function mistakesIn(text: string): string[] {
  const path = fileWith(text)
  try {
    readFleet(path)
  } catch (error) {
    expect(error).toBeInstanceOf(StartError)
    return (error as Error).message.replaceAll(path, 'fleet.yaml').split('\n')
  }
  return []
}

describe('readFleet', () => {
  it('reads what a fleet shall have, its files beside it', () => {
    const path = fileWith(GOOD)
    const fleet = readFleet(path)
    expect(fleet).toMatchObject({
      devicesPath: join(path, '../fleet-devices.jsonl'),
      connect: { address: { host: '127.0.0.1', port: 8_443 }, caPath: join(path, '../ca.pem') },
      vars: { port: 8001 },
      deviceVars: { cam02: { port: 8002 } },
      policies: { closed: 'on_http_request: []\n', open: { on_http_request: [] } },
    })
    expect(fleet.sets.cameras?.tunnels).toEqual([
      {
        protocol: 'http',
        domain: 'view.{name}.site.test',
        forwards_to: 'localhost:{port}',
        policy: 'closed',
      },
      { protocol: 'tcp', forwards_to: '22' },
    ])
  })

  it.each([
    ['version: 2\nsets: {}\n', ['fleet.yaml:1:10: /version must be 1']],
    [GOOD.replace('version: 1', 'colour: red\nversion: 1'), ['fleet.yaml:1:9: /colour is unknown']],
    [
      GOOD.replace('forwards_to: localhost', 'forward_to: localhost'),
      [
        'fleet.yaml:15:9: /sets/cameras/tunnels/0/forwards_to must be an upstream address, such as localhost:8001 or a port',
        'fleet.yaml:16:21: /sets/cameras/tunnels/0/forward_to is unknown: did you mean forwards_to?',
      ],
    ],
    [
      GOOD.replace('policy: closed', 'policy: locked'),
      ['fleet.yaml:17:17: /sets/cameras/tunnels/0/policy refers to the unknown policy locked'],
    ],
    [
      GOOD.replace('forwards_to: 22', 'forwards_to: [22]'),
      [expect.stringMatching(/^fleet\.yaml:18:\d+: \/sets\/cameras\/tunnels\/1\/forwards_to /)],
    ],
    [
      GOOD.replace('8443', 'x').replace('tags: [camera]', 'tags: camera'),
      [
        'fleet.yaml:3:12: /connect/address must be host:port',
        expect.stringMatching(/^fleet\.yaml:13:11: \/sets\/cameras\/tags /),
      ],
    ],
    ['version: 1\n  sets: {}\n', [expect.stringMatching(/^fleet\.yaml:1:10: /), expect.anything()]],
    ['version: 1\nsets: {}\nsets: {}\n', [expect.stringMatching(/^fleet\.yaml:3:1: /)]],
    [
      GOOD.replace('closed.yaml', 'gone.yaml'),
      [expect.stringMatching(/^fleet\.yaml:9:11: .*ENOENT/)],
    ],
  ])('names each mistake with its line and its place: %j', (text, mistakes) => {
    expect(mistakesIn(text)).toEqual(mistakes)
  })

  it('says when there is no file', () => {
    expect(() => readFleet('/nowhere/fleet.yaml')).toThrow(
      /^Cannot read \/nowhere\/fleet\.yaml \(ENOENT\)\.$/,
    )
  })
})
