import { writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { describe, expect, it } from 'vitest'
import { checkFleet, whyUnmanaged } from '../../../src/cli/fleet/fleet-checks.ts'
import { type Fleet, readFleet } from '../../../src/cli/fleet/fleet-file.ts'
import { temporaryFolder } from '../../helpers/temporary-folder.ts'

const GOOD = `version: 1
vars: { port: 8001 }
device_vars:
  cam02: { speed: 9600 }
  cam01: { speed: 1200 }
sets:
  cameras:
    tags: [camera, garage]
    vars: { port: 8002 }
    tunnels:
      - domain: "view.{name}.{site}"
        forwards_to: localhost:{port}
      - domain: serial.{speed}.{agent_domain}
        forwards_to: 22
`
const DEVICES = [
  { name: 'cam01', tags: ['camera', 'garage'] },
  { name: 'cam02', tags: ['camera', 'garage'] },
  { name: 'door1', tags: ['doors'] },
]

const BAD_POLICY = `on_http_request:
  - actions:
      - type: basic-auth
        config:
          credentials: [tom:short]
`

function mistakesIn(text: string, devices = DEVICES): string[] {
  const path = join(temporaryFolder(), 'fleet.yaml')
  writeFileSync(path, text)
  const policyPath = join(path, '../bad.yaml')
  writeFileSync(policyPath, BAD_POLICY)
  const listPath = join(path, '../fleet-devices.jsonl')
  const shown = (it: string) =>
    it
      .replaceAll(path, 'fleet.yaml')
      .replaceAll(policyPath, 'bad.yaml')
      .replaceAll(listPath, 'the list')
  const listed = devices.map((it) => ({ ...it, agentDomain: `agent.${it.name}.site.test` }))
  return checkFleet(readFleet(path), listed).mistakes.map(shown)
}

describe('a fleet file with names that match nothing', () => {
  it.each([
    ['', '', []],
    ['garage]', 'garge]', ['fleet.yaml:8:20: No device has the tag garge. Did you mean garage?']],
    [
      'garage]',
      'x]',
      ['fleet.yaml:8:20: No device has the tag x. Known tags: camera, doors, garage.'],
    ],
    ['garage]', 'doors]', ['fleet.yaml:8:11: No device has all of the tags camera, doors.']],
    [
      ':{port}',
      ':{prot}',
      [
        'fleet.yaml:12:32: The variable {prot} is unknown. Did you mean {port}?',
        'fleet.yaml:2:15: The variable port is used in no tunnel. Did you mean prot?',
        'fleet.yaml:9:19: The variable port is used in no tunnel. Did you mean prot?',
      ],
    ],
    [
      '  cam01: { speed: 1200 }\n',
      '',
      [
        'fleet.yaml:12:24: {speed} has no value for cam01. Set it in vars, in vars of the set, or in device_vars.',
      ],
    ],
    [
      'cam02:',
      'cam03:',
      [
        'fleet.yaml:13:24: {speed} has no value for cam02. Set it in vars, in vars of the set, or in device_vars.',
        'fleet.yaml:4:10: the list contains no device named cam03. Did you mean cam01?',
      ],
    ],
  ])('names each one once, with its place: %j as %j', (good, wrong, mistakes) => {
    expect(mistakesIn(GOOD.replace(good, wrong))).toEqual(mistakes)
  })

  it('names a domain that several devices would have, unless they pool', () => {
    const fixed = GOOD.replace('"view.{name}.{site}"', 'view.site.test')
    const sentence =
      'would have the same domain view.site.test. Put {name} into it, or set pooling_enabled.'
    expect(mistakesIn(fixed)).toEqual([`fleet.yaml:11:17: cam01, cam02 ${sentence}`])
    const one = DEVICES.slice(1).map((it, at) => (at === 0 ? { ...it, name: 'cam01' } : it))
    const alone = fixed.replace('  cam02: { speed: 9600 }\n', '')
    expect(mistakesIn(alone, one)).toEqual([])
    const pooled = fixed.replace(
      'localhost:{port}',
      'localhost:{port}\n        pooling_enabled: true',
    )
    expect(mistakesIn(pooled)).toEqual([])
    const doors = `${alone}  doors: { tags: [doors], tunnels: [{ domain: view.site.test, forwards_to: 1 }] }\n`
    expect(mistakesIn(doors, one)).toEqual([`fleet.yaml:10:17: cam01, door1 ${sentence}`])
    const variable = GOOD.replace('"view.{name}.{site}"', 'view.{port}.test')
    expect(mistakesIn(variable)).toEqual([
      expect.stringContaining('cam01, cam02 would have the same domain view.8002.test.'),
    ])
  })

  it('names an unknown variable once for 1,000 devices', () => {
    const many = Array.from({ length: 1_000 }, (_, at) => ({
      name: `cam${at}`,
      tags: ['camera', 'garage'],
    }))
    const text = GOOD.replace(/device_vars:\n.*\n.*\n/, '').replace('{speed}', '{name}')
    expect(mistakesIn(text.replace(':{port}', ':{port}{spede}'), many)).toEqual([
      'fleet.yaml:9:38: The variable {spede} is unknown. Set it in vars, in vars of the set, or in device_vars.',
    ])
  })
})

describe('a fleet file with several kinds of mistakes', () => {
  it('names all of them in one run', () => {
    const text = GOOD.replace(
      'sets:',
      'policies: { bad: bad.yaml, own: { on_http_request: [] } }\nsets:',
    )
      .replace('garage]', 'garge]')
      .replace(':{port}', ':{prot}{port}\n        polcy: clsd\n        upstream: { helth: off }')
      .replace('forwards_to: 22', 'forwards_to: 22\n        policy: badd')
      .replace('cam01:', 'cam9:')
    expect(mistakesIn(text)).toEqual([
      'fleet.yaml:14:16: polcy is not a field of a tunnel. Did you mean policy?',
      'fleet.yaml:15:28: helth is not a field of upstream. Did you mean health?',
      'fleet.yaml:12:9: The policy clsd is unknown. Known policies: bad, own.',
      'fleet.yaml:18:17: The policy badd is unknown. Did you mean bad?',
      'fleet.yaml:9:20: No device has the tag garge. Did you mean garage?',
      'fleet.yaml:13:32: The variable {prot} is unknown. Did you mean {port}?',
      'fleet.yaml:5:9: the list contains no device named cam9. Did you mean cam01?',
      'bad.yaml:5:25: A password must have 8 to 128 characters. (ERR_NGROK_360)',
    ])
  })

  it('names mistakes of a policy in the fleet file with their line there', () => {
    const policy = `policies:
  own:
    on_http_request:
      - actions:
          - { type: restrict-ips, config: { allow: [nowhere] } }
sets:`
    expect(mistakesIn(GOOD.replace('sets:', policy))).toEqual([
      expect.stringMatching(/^fleet\.yaml:10:53: nowhere is not .* \(ERR_NGROK_2217\)$/),
    ])
  })

  it('blames nothing on a part that was left out', () => {
    const text = GOOD.replace('vars: { port: 8001 }', 'vars: [port]').replace(
      'forwards_to: localhost:{port}',
      'protocol: http',
    )
    expect(mistakesIn(text)).toEqual([
      'fleet.yaml:2:7: vars must be a map of names and values.',
      'fleet.yaml:11:9: forwards_to is missing.',
    ])
  })

  it('calls no variable or policy unknown that a left-out part may set', () => {
    expect(mistakesIn(GOOD.replace('cam01: { speed: 1200 }', 'cam01: [speed]'))).toEqual([
      'fleet.yaml:5:10: cam01 must be a map of names and values.',
    ])
    const text = GOOD.replace('forwards_to: 22', 'forwards_to: 22\n        policy: closed')
    expect(mistakesIn(text.replace('sets:', 'policies: [closed]\nsets:'))).toEqual([
      'fleet.yaml:6:11: policies must be a map of names and values.',
    ])
  })
})

describe('a device in no set', () => {
  it.each([
    [[], [['camera']], 'Without tags, and each set requires tags.'],
    [['garge'], [['garage']], 'No set matches the tags garge. Did you mean garage for garge?'],
    [['camera'], [['camera', 'berlin']], 'No set matches the tags camera.'],
    [['camera'], [], 'The file has no sets.'],
  ])('is told why: %j and sets of %j', (tags, sets, why) => {
    const all: Fleet['sets'] = Object.fromEntries(
      sets.map((some, at) => [`s${at}`, { tags: some, vars: {}, tunnels: [] }]),
    )
    expect(whyUnmanaged({ sets: all }, { name: 'x', tags })).toBe(why)
  })
})
