import { describe, expect, it } from 'vitest'
import { compileExpression, evaluate } from '../../helpers/policy-exchange.ts'

describe('functions of strings', () => {
  it.each([
    ["'device'.contains('vic')", true],
    ["'device'.startsWith('dev') && 'device'.endsWith('ice')", true],
    ["'/api/v1/users/ab'.matches('^/api/v[0-9]+/users/..$')", true],
    ["'Bronze tier'.matches('(?i)bronze')", true],
    ["'silver'.matches('(?i)bronze')", false],
    ["'añ😀'.size()", 3],
    ["size('añ😀')", 3],
    ["'hello'.charAt(4) + 'hello'.charAt(5)", 'o'],
    ["'hello mellow'.indexOf('ello')", 1],
    ["'hello mellow'.lastIndexOf('ello')", 7],
    ["'a b c'.split()", ['a', 'b', 'c']],
    ["'a,b,c'.split(',')", ['a', 'b', 'c']],
    ["'a,b,c'.split(',', 2)", ['a', 'b']],
    ["'a,b,c'.split(',', -1)", ['a', 'b', 'c']],
    ["['a', 'b'].join()", 'ab'],
    ["['a', 'b'].join('-')", 'a-b'],
    ["'hello'.replace('l', 'L')", 'heLLo'],
    ["'hello'.replace('l', 'L', 1)", 'heLlo'],
    ["'hello'.replace('x', 'L')", 'hello'],
    ["'ab'.replace('', '-')", 'a-b'],
    ["'tacocat'.substring(4)", 'cat'],
    ["'tacocat'.substring(0, 4)", 'taco'],
    ["'  trim '.trim()", 'trim'],
    ["'añ😀'.reverse()", '😀ña'],
    ["'ÄB'.lower() + 'äb'.upper()", 'äbÄB'],
    ["'ÄB'.lowerAscii() + 'äb'.upperAscii()", 'ÄbäB'],
    ["'%s has %d'.format(['x', 3])", 'x has 3'],
    [`strings.quote('say "hi"')`, '"say \\"hi\\""'],
  ])('%s is %j', (source, value) => {
    expect(evaluate(source)).toEqual(value)
  })
})

describe('functions of lists and maps', () => {
  it.each([
    ['[1, 2, 3].all(n, n > 0)', true],
    ['[1, 2, 3].exists(n, n > 2)', true],
    ['[1, 2, 3].exists_one(n, n > 2)', true],
    ['[1, 2, 3].filter(n, n > 1)', [2, 3]],
    ['[1, 2, 3].map(n, n * 2)', [2, 4, 6]],
    ['[1, 2, 3].map(n, n > 1, n * 2)', [4, 6]],
    [
      '[1, 2, 3].map(n, [n, n].map(m, m + n))',
      [
        [2, 2],
        [4, 4],
        [6, 6],
      ],
    ],
    ['[].map(n, n)', []],
    ["{'a': 1, 'b': 2}.map(k, k)", ['a', 'b']],
    ["{'a': 1}.exists(k, k == 'a') && size({'a': 1}) == 1", true],
    ['lists.range(4)', [0, 1, 2, 3]],
    ['[1, 2, 3, 4].slice(1, 3)', [2, 3]],
    ['[[1], [2, [3]]].flatten()', [1, 2, [3]]],
    ['[[1], [2, [3]]].flatten(2)', [1, 2, 3]],
    ["['b', 'a'].sort()", ['a', 'b']],
    ['[3, 1.5, 2].sort()', [1.5, 2, 3]],
    ["['ccc', 'a', 'bb'].sortBy(s, size(s))", ['a', 'bb', 'ccc']],
    ["[1, 2, 1, 1.0, 'a', 'a'].distinct()", [1, 2, 'a']],
    ["[1, 'a', null].encodeJson()", '[1,"a",null]'],
    ["{'a': [true]}.encodeJson()", '{"a":[true]}'],
    ['2 in [1, 2] && !(3 in [1, 2])', true],
    ["'a' in {'a': 1}", true],
  ])('%s is %j', (source, value) => {
    expect(evaluate(source)).toEqual(value)
  })

  it.each([
    "[1, 'a'].sort()",
    '[[1], [2]].sort()',
    '[1, 2].slice(1, 3)',
    'lists.range(-1)',
    'lists.range(20000)',
    '[1].flatten(-1)',
  ])('%s is an error', (source) => {
    expect(() => compileExpression(source)).toThrow()
  })
})

describe('encodings', () => {
  it.each([
    ["base64.encode(b'hello')", 'aGVsbG8='],
    ["string(base64.decode('aGVsbG8='))", 'hello'],
    ["string(base64.decode('aGVs\\r\\nbG8=\\n'))", 'hello'],
    ["'hello'.encodeBase64()", 'aGVsbG8='],
    ["'aGVsbG8='.decodeBase64()", 'hello'],
    ["basic_auth.encode('me', 'secret')", 'Basic bWU6c2VjcmV0'],
    [`json.decode('{"a": [1, {"b": null}]}').a[1]`, { b: null }],
    [`'{"constructor": {"__proto__": 1}}'.decodeJson().constructor`, { ['__proto__']: 1 }],
    ["json.encode({'a': 1u, 'b': b'x', 'c': 1.5})", '{"a":1,"b":"eA==","c":1.5}'],
    ["'[1'.isJson() || !'[1]'.isJson()", false],
    ["queryString.decode('a=1&a=2&b=x%20y')", { a: ['1', '2'], b: ['x y'] }],
    ["'a=1'.decodeQueryString().a[0]", '1'],
    ["queryString.encode({'a': ['1', '2']})", 'a=1&a=2'],
    ["{'a': 'x y'}.encodeQueryString()", 'a=x+y'],
    ["'a=1&b'.isQueryString() && !'a b'.isQueryString()", true],
    ["url.parse('https://me@h:8/p%20q?x=1#f').path", '/p q'],
    ["'https://me@h:8/p%20q?x=1#f'.parseUrl().host", 'h:8'],
    ["'https://h/?x=1'.parseUrl().query.x[0]", '1'],
    ["url.escape('a/b c') + url.unescape('%2F')", 'a%2Fb%20c/'],
    ["'a b'.escapeUrl() + '%41'.unescapeUrl()", 'a%20bA'],
    ["'https://h'.isURL() && !'h'.isURL()", true],
  ])('%s is %j', (source, value) => {
    expect(evaluate(source)).toEqual(value)
  })

  it.each([
    ["base64.decode('***')", 'not base64'],
    ["base64.decode('aGVsbG8')", 'not base64'],
    ["base64.decode('aA')", 'not base64'],
    ["base64.decode('aA=')", 'not base64'],
    ["'aGVsbG8'.decodeBase64()", 'not base64'],
    ["base64.decode('aGVs bG8=')", 'not base64'],
    ["json.decode('{')", 'not JSON'],
    ["url.parse('nope')", 'not a URL'],
    ["url.unescape('%zz')", 'invalid percent escape'],
    ["hash.md5('a', 'octal')", "'hex' or 'base64'"],
  ])('%s is an error', (source, sentence) => {
    expect(() => compileExpression(source)).toThrow(sentence)
  })
})

describe('digests', () => {
  it.each([
    ['md5', '5d41402abc4b2a76b9719d911017c592'],
    ['sha1', 'aaf4c61ddcc5e8a2dabede0f3b482cd9aea9434d'],
    ['sha256', '2cf24dba5fb0a30e26e83b2ac5b9e29e1b161e5c1fa7425e73043362938b9824'],
    ['crc32', '3610a686'],
    ['crc64', '3c3eeee2d8100000'],
    ['xxhash64', '26c7827d889f6da3'],
  ])('%s of hello is %s, as function and as method', (name, digest) => {
    expect(evaluate(`hash.${name}('hello')`)).toBe(digest)
    expect(evaluate(`'hello'.${name}()`)).toBe(digest)
    const base64 = Buffer.from(digest, 'hex').toString('base64')
    expect(evaluate(`'hello'.${name}('base64')`)).toBe(base64)
  })

  it.each([
    ['', 'ef46db3751d8e999'],
    ['a', 'd24ec4f1a98c6e5b'],
    ['abc', '44bc2cf5ad770999'],
    ['The quick brown fox jumps over the lazy dog', '0b242d361fda71bc'],
  ])('xxhash64 of %j is %s', (text, digest) => {
    expect(evaluate(`hash.xxhash64('${text}')`)).toBe(digest)
  })

  it('sha512 has 64 bytes', () => {
    expect(evaluate("hash.sha512('hello').size()")).toBe(128)
  })
})

describe('functions of a request', () => {
  const request = {
    url: 'https://h/?a=1&a=2',
    headers: ['X-A', '1', 'Cookie', 'c=1; c=2'],
  }

  it.each([
    ["getReqHeader('x-a')", ['1']],
    ["hasReqHeader('x-b')", false],
    ["getQueryParam('a')", ['1', '2']],
    ["hasQueryParam('b')", false],
    ["getReqCookie('c').value", '1'],
    ["hasReqCookie('d')", false],
  ])('%s is %j', (source, value) => {
    expect(evaluate(source, request)).toEqual(value)
  })

  it('fail for a cookie that is not there', () => {
    expect(() => evaluate("getReqCookie('d').value", request)).toThrow(
      'the request has no cookie d',
    )
  })
})

describe('functions of addresses', () => {
  it.each([
    ["inCidrRange('203.0.113.9', '203.0.113.0/24')", true],
    ["inCidrRange('203.0.113.9', '203.0.114.0/24')", false],
    ["inCidrRange('2001:db8::1', '2001:db8::/32')", true],
    ["inCidrRange('203.0.113.9', '2001:db8::/32')", false],
    ["inCidrRange('203.0.113.9', 'nonsense')", false],
    ["inCidrRange('nonsense', '203.0.113.0/24')", false],
    ["inCidrRanges('10.1.2.3', ['nonsense', '10.0.0.0/8'])", true],
    ["inCidrRanges('10.1.2.3', [])", false],
    ["'192.168.1.1'.isPrivateIp() && '172.31.0.1'.isPrivateIp()", true],
    ["'8.8.8.8'.isPrivateIp() || 'fc00::1'.isPrivateIp()", false],
    ['conn.client_ip.isPrivateIp()', false],
  ])('%s is %j', (source, value) => {
    expect(evaluate(source)).toBe(value)
  })
})

describe('functions of chance', () => {
  it('stay within their bounds', () => {
    for (let round = 0; round < 50; round += 1) {
      expect(evaluate('rand.double() >= 0.0 && rand.double() < 1.0')).toBe(true)
      expect(evaluate('rand.int() in [0, 1]')).toBe(true)
      expect([3, 4, 5]).toContain(evaluate('rand.int(3, 5)'))
    }
  })

  it('refuse negative bounds', () => {
    expect(() => compileExpression('rand.int(-1, 5)')).toThrow('from 0')
  })
})

describe('functions of time', () => {
  it.each([
    ["timestamp('2024-07-13T00:10:16Z').getFullYear()", 2024],
    ["timestamp('2024-07-13T00:10:16Z').getMonth()", 6],
    ["timestamp('2024-07-13T00:10:16Z').getDate()", 13],
    ["timestamp('2024-07-13T00:10:16Z').getDayOfMonth()", 12],
    ["timestamp('2024-07-13T00:10:16Z').getDayOfWeek()", 6],
    ["timestamp('2024-07-13T00:10:16Z').getDayOfYear()", 194],
    ["timestamp('2024-07-13T00:10:16.5Z').getMilliseconds()", 500],
    ["timestamp('2024-07-13T00:10:16Z').getHours('02:00')", 2],
    ["timestamp('2024-07-13T00:10:16Z').getHours('Europe/Berlin')", 2],
    ["timestamp('2024-12-31T23:10:16Z').getFullYear('+01:00')", 2025],
    ["timestamp('2024-01-01T02:10:16Z').getDayOfYear('-05:30')", 364],
    ["timestamp('2024-07-13T00:10:16.5Z').getDayOfWeek('America/Lima')", 5],
    ["timestamp('2024-07-13T00:10:16.5Z').getMilliseconds('Asia/Tokyo')", 500],
    ["timestamp('2024-03-31T01:30:00Z').getHours('Europe/Berlin')", 3],
    ["timestamp('2024-07-13T00:10:16Z')", '2024-07-13T00:10:16Z'],
    ["timestamp('2024-07-13T00:10:16Z') + duration('90s')", '2024-07-13T00:11:46Z'],
    ["duration('90s').getMinutes()", 1],
    ["duration('1.5s')", '1.5s'],
    ["duration('1.5s').getMilliseconds()", 500],
    ["duration('-90s')", '-90s'],
  ])('%s is %j', (source, value) => {
    expect(evaluate(source)).toEqual(value)
  })
})

describe('a time zone that is none', () => {
  it('is an error', () => {
    const source = "timestamp('2024-07-13T00:10:16Z').getHours('Mars/Base')"
    expect(() => compileExpression(source)).toThrow('Mars/Base is not a time zone')
  })
})

describe('casts', () => {
  it.each([
    ["int('42') + int(4.9) + int(true ? 1u : 2u)", 47],
    ["double('1.5')", 1.5],
    ["bool('true')", true],
    ['string(1.0) + string(true) + string(7)', '1true7'],
    ["bytes('é').size()", 2],
    ["type(1) == int && type('') == string", true],
    ['dyn(1) == 1.0', true],
    ['9223372036854775807', '9223372036854775807'],
  ])('%s is %j', (source, value) => {
    expect(evaluate(source)).toEqual(value)
  })
})
